"""The wheel has programs of one architecture, for every Python: its tag is in EBB_WHEEL_TAG."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["EBB_WHEEL_TAG"]
