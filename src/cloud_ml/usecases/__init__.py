"""What a caller may ask for: authorise, normalise, check, write one record, return it. No HTTP
types.
"""
