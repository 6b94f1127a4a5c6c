"""What training needs of others and does not make itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

#: A text encoder: float32 [texts, dim], rows of length 1.
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
#: Questions that each statement answers; an empty list where nothing can be asked.
WriteQuestions = Callable[[Sequence[str]], list[list[str]]]
