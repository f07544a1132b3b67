"""Plans for acquiring events from distributed sources (plan-based CED): the tree of an event, models of its sources,
the cost and latency of plans, and the search for the best plan. All of it is data; nothing here reads an event."""
