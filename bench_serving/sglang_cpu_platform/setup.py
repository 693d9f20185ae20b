"""Installs the package, and beside it the .pth file that Python reads at every start."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithPth(build_py):
    def run(self) -> None:
        super().run()
        shutil.copy2(Path(__file__).with_name("sglang_cpu_platform.pth"), self.build_lib)


setup(packages=["sglang_cpu_platform"], cmdclass={"build_py": WithPth})
