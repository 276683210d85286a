"""One thread a worker: threads of two workers on two cores would only wait for each other."""

import torch

torch.set_num_threads(1)
