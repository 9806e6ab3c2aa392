"""Images of the trainer's environments: made, described, and prepared for each runtime.

Other rooms may import trainer_image, make_image and oci, and load a runtime of runtimes/ by its
name. It imports trainer, study, machine and common; at module level nothing beyond the standard
library and NumPy.
"""
