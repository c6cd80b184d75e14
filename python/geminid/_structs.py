"""The structs of geminid/c_api.h. ``filled`` makes each of them, with the library's defaults."""

import ctypes

_TEXT, _INT, _SIZE = ctypes.c_char_p, ctypes.c_int32, ctypes.c_size_t
_U32, _U64, _I64, _REAL = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_double


class SessionOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("socket", _TEXT), ("job", _TEXT), ("run", _TEXT), ("client_name", _TEXT),
        ("rank", _INT), ("world_size", _INT), ("local_rank", _INT), ("local_world_size", _INT),
        ("device", _INT), ("keep_on_death", _INT), ("strict_device", _INT), ("private_daemon", _INT),
        ("daemon_program", _TEXT), ("daemon_flags", ctypes.POINTER(_TEXT)), ("daemon_flag_count", _SIZE),
        ("device_memory_bytes", _U64), ("copy_bytes_per_second", _REAL), ("copy_latency_seconds", _REAL),
        ("timeout_seconds", _REAL)]


class RanksOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("from_environment", _INT), ("rank", _INT), ("world_size", _INT),
        ("local_rank", _INT), ("local_world_size", _INT), ("backend", _INT),
        ("master_port", ctypes.c_uint16), ("master_address", _TEXT), ("job", _TEXT), ("name", _TEXT),
        ("interface_address", _TEXT), ("timeout_seconds", _REAL), ("connect_timeout_seconds", _REAL)]


class Place(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("rank", _INT), ("world_size", _INT), ("local_rank", _INT),
                ("local_world_size", _INT)]


class Parameter(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("name", _TEXT), ("shape", ctypes.POINTER(_I64)), ("dimensions", _SIZE),
        ("data_type", _INT), ("trainable", _INT), ("decay", _INT), ("backward_uses", _INT),
        ("separate_gradient", _INT), ("update_without_gradient", _INT), ("unit", _I64),
        ("weight_decay", _REAL), ("learning_rate_scale", _REAL), ("group", _U64), ("orthogonal", _INT)]


class Optimizer(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("kind", _INT)] + [
        (name, _INT) for name in (
            "decoupled", "bias_correction", "grad_averaging", "always_adapt", "nesterov",
            "decay_after_momentum", "relative_step", "warmup_init", "scale_parameter")] + [
        (name, _REAL) for name in (
            "beta1", "beta2", "beta3", "epsilon", "epsilon1", "epsilon2", "weight_decay", "max_grad_norm",
            "momentum", "dampening", "trust_coefficient", "trust_limit", "rate_decay", "clip_threshold",
            "decay_exponent")] + [("muon_rate", _INT)]


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("optimizer", ctypes.POINTER(Optimizer)), ("loss_scaler", ctypes.c_void_p),
        ("data_type", _INT), ("stage", _INT), ("placement", _INT), ("state_placement", _INT),
        ("gradient_scale", _INT), ("update", _INT), ("not_finite", _INT), ("accumulate", _INT), ("stable_addresses", _INT),
        ("max_lookahead_moments", _INT), ("update_threads", _INT), ("resume", _INT),
        ("state_share", _REAL), ("clip_norm", _REAL), ("timeout_seconds", _REAL), ("chunk_elements", _U64),
        ("state_type", _INT), ("state_disk_folders", ctypes.POINTER(ctypes.c_char_p)), ("state_disk_folder_count", _SIZE),
        ("state_disk_limit_bytes", _U64), ("state_disk_endurance_bytes", _U64)]


class Range(ctypes.Structure):
    _fields_ = [("offset", _U64), ("elements", _U64)]


class Progress(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("step", _U64), ("updates", _U64), ("loss_scale", _REAL),
        ("good_steps", _U32), ("overflows", _U32), ("tensor_state", ctypes.c_void_p),
        ("tensor_state_capacity", _SIZE), ("tensor_state_bytes", _SIZE)]


class Resumed(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("resumed", _INT), ("was_behind", _INT), ("step", _U64),
        ("data_position", _U64), ("random_state", _U64 * 4), ("granules_updated", _U64)]


class Group(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("learning_rate", _REAL), ("weight_decay", _REAL), ("beta1", _REAL),
                ("beta2", _REAL), ("epsilon", _REAL)]


class StepInput(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("groups", ctypes.POINTER(Group)), ("group_count", _SIZE),
        ("learning_rate", _REAL), ("clip_norm", _REAL), ("gradient_norm", _REAL), ("data_position", _U64),
        ("random_state", _U64 * 4), ("gradient_scale", _REAL)]


class StepResult(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("step", _U64), ("gradient_norm", _REAL), ("clip_coefficient", _REAL),
        ("loss_scale", _REAL), ("overflow", _INT), ("wait_ended", _INT)]


class ActivationStoreOptions(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("place_bytes", _U64), ("places", _U32)]


class SaveOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE), ("keep", _U64), ("health", _INT), ("has_adopts", _INT),
        ("adopts", ctypes.POINTER(ctypes.c_char_p)), ("adopt_count", _SIZE), ("data_position", _U64),
        ("random_state", _U64 * 4), ("max_file_bytes", _U64), ("file_names", ctypes.POINTER(_TEXT)),
        ("file_contents", ctypes.POINTER(_TEXT)), ("file_bytes", ctypes.POINTER(_SIZE)), ("file_count", _SIZE)]


#: The C function that fills each struct.
INIT = {SessionOptions: "session_options", RanksOptions: "ranks_options", Place: "place",
        Parameter: "parameter", Optimizer: "optimizer", EngineOptions: "engine_options",
        Progress: "progress", Resumed: "resumed", Group: "group", StepInput: "step_input",
        StepResult: "step_result", ActivationStoreOptions: "activation_store_options",
        SaveOptions: "save_options"}

FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _U32, _U64, ctypes.POINTER(ctypes.c_float), _U64)
