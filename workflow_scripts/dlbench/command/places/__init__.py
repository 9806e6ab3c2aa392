"""Commands about what a study needs: data, environments, a site, its machines."""
