"""The workflow of docs/module.md, which uses ours as a module from another folder."""

import re

import yaml

from support.campaigns.campaign import REPOSITORY, Campaign
from support.studies.site_facts import UNDISTURBED

PAGE = REPOSITORY / "docs" / "module.md"
BLOCK = re.compile(r"`([\w./]+)`:\n\n```(?:snakemake|yaml)\n(.*?)```\n", re.DOTALL)


class Scratch(Campaign):
    """The folder of that workflow, beside a clone of the project named dlbench."""

    @classmethod
    def beside(cls, project, folder):
        """Write the page's files to a new folder; the study tolerates a busy machine."""
        scratch = cls(folder, project.variables)
        for name, content in BLOCK.findall(PAGE.read_text()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        scratch.study(**UNDISTURBED)
        return scratch

    def study(self, **changes):
        path = self.folder / "config/config.yaml"
        config = yaml.safe_load(path.read_text())
        config["dlbench"] |= changes
        path.write_text(yaml.safe_dump(config))

    def block(self, **changes):
        path = self.folder / "config/config.yaml"
        (block,) = yaml.safe_load(path.read_text())["dlbench"]["matrix"]
        self.study(matrix=[block | changes])

    def edit(self, before, after):
        """Replace a text that its Snakefile has exactly once."""
        path = self.folder / "Snakefile"
        text = path.read_text()
        assert text.count(before) == 1, before
        path.write_text(text.replace(before, after))
