"""What holds for all tests."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Graphs of two dozen nodes: threads would only wait for each other, and with several workers spin.
torch.set_num_threads(1)
# Time on a busy machine says nothing of the code; benchmarks measure it.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The text cache of this session: none of what tests encode lies in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
