"""Report: turn results into tables, figures and pages. Draws what it is given, computes nothing."""
