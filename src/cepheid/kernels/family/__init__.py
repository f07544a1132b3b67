"""Families: queries that are equal up to constants as one operator (NEXT §4.4).

`event_bits` finds the rules whose tests an event passes; `instances` carries them along, with the rules still alive.
"""
