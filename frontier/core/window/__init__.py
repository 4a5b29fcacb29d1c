"""From the records of a trial to the arrays that count."""
