"""What holds for all tests."""

import torch

# Graphs of two dozen nodes: threads would only wait for each other, and with several workers spin.
torch.set_num_threads(1)
