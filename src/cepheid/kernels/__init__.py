"""The evaluators: each turns a plan into a kernel."""
