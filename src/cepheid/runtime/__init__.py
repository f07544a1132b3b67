"""What generated code and its callers share: batches, kernels, the JIT, arrays."""
