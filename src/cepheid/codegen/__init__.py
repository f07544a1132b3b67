"""From a plan to running code: expressions to kernel source and to Arrow compute, kernels compiled and cached."""
