"""Configuration: config.yaml, ontology/**/*.yaml and the environment -> Settings, Ontology and Environment."""

from duckkb.config.config_files import Loaded as Loaded
from duckkb.config.config_files import OtherModel as OtherModel
from duckkb.config.config_files import Stamp as Stamp
from duckkb.config.config_files import config_paths as paths
from duckkb.config.config_files import find_root as find_root
from duckkb.config.config_files import is_stand_in as is_stand_in
from duckkb.config.config_files import load as load
from duckkb.config.config_files import other_model as other_model
from duckkb.config.config_files import stamp as stamp
from duckkb.config.config_files import stand_in as stand_in
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
from duckkb.config.machine_memory import accept as accept
from duckkb.config.machine_memory import accept_commands as accept_commands
from duckkb.config.machine_memory import are_commands_trusted as are_commands_trusted
from duckkb.config.machine_memory import change_outside as change_outside
from duckkb.config.machine_memory import commands as commands
from duckkb.config.machine_memory import demands as demands
from duckkb.config.machine_memory import is_demanded as is_demanded
from duckkb.config.machine_memory import is_trusted as is_trusted
from duckkb.config.machine_memory import outside_definitions as outside_definitions
from duckkb.config.machine_memory import outside_files as outside_files
from duckkb.config.machine_memory import remember_schemas as remember_schemas
from duckkb.config.machine_memory import trust_hash as trust_hash

__all__ = ["paths"]
