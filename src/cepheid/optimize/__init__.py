"""From a query to the plan that evaluates it."""
