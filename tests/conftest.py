"""One thread a worker: threads of two workers on two cores would only wait for each other."""

import torch
from hypothesis import Phase, settings

torch.set_num_threads(1)

settings.register_profile("mutants", phases=[Phase.explicit, Phase.reuse, Phase.generate], max_examples=30)
"""For `make mutants`: a mutant is killed by a failure; to shrink it takes minutes and tells nothing more."""
