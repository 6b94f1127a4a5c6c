"""Settings and fixtures of all tests."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Graphs have two dozen nodes: threads would only wait for each other, and spin if several test workers run.
torch.set_num_threads(1)
# Times on a busy machine say nothing about the code; benchmarks measure them.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A text cache for this session, so that tests do not write into the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
