"""Types of arrays."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
