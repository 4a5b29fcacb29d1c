"""Ten thousand nights: whole command lines in virtual time, from a seed, and what must always
hold.
"""
