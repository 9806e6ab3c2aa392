"""Commands about a study that is to be run, runs or did."""
