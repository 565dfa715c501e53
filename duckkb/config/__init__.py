"""Configuration: config.yaml, ontology/**/*.yaml and the environment -> Settings, Ontology and Environment."""

from duckkb.config.environment import apart as apart
from duckkb.config.environment import byte_count as byte_count
from duckkb.config.environment import environment as environment
from duckkb.config.environment import forge_page as forge_page
from duckkb.config.environment import is_in_workflow as is_in_workflow
from duckkb.config.environment import note_sealing as note_sealing
from duckkb.config.environment import plain_around as plain_around
from duckkb.config.environment import read_environment as read_environment
from duckkb.config.environment import secret as secret
from duckkb.config.environment import wants_color as wants_color
from duckkb.config.load import Loaded as Loaded
from duckkb.config.load import Stamp as Stamp
from duckkb.config.load import config_paths as paths
from duckkb.config.load import find_root as find_root
from duckkb.config.load import load as load
from duckkb.config.load import stamp as stamp
from duckkb.config.other_model import OtherModel as OtherModel
from duckkb.config.other_model import other_model as other_model
from duckkb.config.remembered import accept as accept
from duckkb.config.remembered import accept_commands as accept_commands
from duckkb.config.remembered import are_commands_trusted as are_commands_trusted
from duckkb.config.remembered import change_outside as change_outside
from duckkb.config.remembered import commands as commands
from duckkb.config.remembered import demands as demands
from duckkb.config.remembered import is_demanded as is_demanded
from duckkb.config.remembered import is_trusted as is_trusted
from duckkb.config.remembered import outside_definitions as outside_definitions
from duckkb.config.remembered import outside_files as outside_files
from duckkb.config.remembered import remember_schemas as remember_schemas
from duckkb.config.remembered import trust_hash as trust_hash
from duckkb.config.standing import is_stand_in as is_stand_in
from duckkb.config.standing import stand_in as stand_in

__all__ = ["paths"]
