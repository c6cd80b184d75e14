// The interface in C11. Together with c_checkpoint.h and c_dlpack.h it is all of libgeminid_c.
//
//   geminid_session_options options;
//   geminid_session_options_init(&options, sizeof options);
//   options.device_memory_bytes = 24 << 20;
//   geminid_session* session;
//   if (geminid_session_connect(&options, &session, error) != GEMINID_OK) {
//     fprintf(stderr, "%s\n", geminid_error_message(error));
//   }
//
// geminid/zero.h, geminid/session.h, geminid/connect.h and geminid/checkpoint.h say what each call
// does, which ranks call it together, and how long it blocks. Rules of the C interface:
//
//  1. Handles are names, not addresses. They may be freed in any order, at any time and twice: an
//     engine keeps its session and its ranks alive. A freed or invented handle gives
//     INVALID_ARGUMENT. NULL may be freed.
//  2. Every function that can fail returns a geminid_code. It writes details to the geminid_error
//     that is its last argument, which may be NULL.
//  3. After an error that is not final nothing has changed, and the object can still be used.
//     After a final one every later call on the engine fails alike (geminid_error_is_final).
//  4. Structs begin with their size, and are filled by their _init function, which gets `sizeof`
//     of the caller's header. So structs can grow at their end.
//  5. A double that means "none" is NAN. Booleans are ints. Strings are UTF-8 and end with 0.
//  6. Arguments are read, and results written, within the call. No argument's memory is used later.
//     A call that fails leaves results alone.
//  7. A stream is a uint64_t: a CUstream with CUDA, else a geminid::Stream*. 0: the default stream,
//     or on the host device the calling thread.
//  8. Any thread may call. A geminid_error belongs to one thread at a time. Calls with one
//     geminid_ranks wait for each other; their order must be the same on all ranks.
//  9. An engine owns its open operations and workspace blocks, which are numbers. Freeing the
//     engine ends those that a caller has forgotten, as geminid_engine_finish_all does.
// 10. After fork() the parent's handles are the parent's: in the child, calls with its session or
//     its engine return FAILED_PRECONDITION, and freeing them changes nothing for the parent. Leave
//     its geminid_ranks alone there. The child may connect for itself.
#ifndef GEMINID_C_API_H_
#define GEMINID_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names of C.

// --- results -------------------------------------------------------------------------------------

// The canonical codes of gRPC and Abseil.
typedef int32_t geminid_code;
enum geminid_codes {
  GEMINID_OK = 0,
  GEMINID_CANCELLED = 1,
  GEMINID_UNKNOWN = 2,
  GEMINID_INVALID_ARGUMENT = 3,
  GEMINID_DEADLINE_EXCEEDED = 4,
  GEMINID_NOT_FOUND = 5,
  GEMINID_ALREADY_EXISTS = 6,
  GEMINID_PERMISSION_DENIED = 7,
  GEMINID_RESOURCE_EXHAUSTED = 8,
  GEMINID_FAILED_PRECONDITION = 9,
  GEMINID_ABORTED = 10,
  GEMINID_OUT_OF_RANGE = 11,
  GEMINID_UNIMPLEMENTED = 12,
  GEMINID_INTERNAL = 13,
  GEMINID_UNAVAILABLE = 14,
  GEMINID_DATA_LOSS = 15,
  GEMINID_UNAUTHENTICATED = 16
};

typedef struct geminid_error geminid_error;

// Receives the details of errors; each call that gets it clears it first. NULL if there is no
// memory. Unlike a handle it is an address: free it once.
geminid_error* geminid_error_new(void);
void geminid_error_free(geminid_error* error);

// Of the last call that got `error`. The message is never NULL, and valid until the next call.
geminid_code geminid_error_code(const geminid_error* error);
const char* geminid_error_message(const geminid_error* error);
// Not 0: the engine has failed, and every later call returns the same. 0: the call was refused.
int geminid_error_is_final(const geminid_error* error);

// "INVALID_ARGUMENT"; "UNKNOWN" for a number that is no code. Static.
const char* geminid_code_name(geminid_code code);

// "0.1.0". Static.
const char* geminid_version(void);

// Frees memory that a function returned through a char**. NULL is ignored.
void geminid_free(void* memory);

// --- sessions: this process's connection to the daemon -------------------------------------------

typedef struct geminid_session geminid_session;

// geminid::ConnectOptions. NULL means an empty string.
typedef struct geminid_session_options {
  size_t struct_size;
  const char* socket;
  const char* job;
  const char* run;
  const char* client_name;
  int32_t rank, world_size;
  int32_t local_rank, local_world_size;
  int32_t device;                        // -1: the daemon chooses
  int32_t keep_on_death, strict_device;  // booleans
  // Not 0: starts a daemon for this session alone, which ends after it; `socket` must be empty. 0:
  // starts one only if none runs.
  int32_t private_daemon;
  // For a daemon that the session starts: the program of a private one (NULL: found as
  // geminid/private_daemon.h says), and further flags.
  const char* daemon_program;
  const char* const* daemon_flags;
  size_t daemon_flag_count;
  uint64_t device_memory_bytes;
  double copy_bytes_per_second;
  double copy_latency_seconds;
  double timeout_seconds;
} geminid_session_options;
void geminid_session_options_init(geminid_session_options* options, size_t struct_size);
geminid_code geminid_session_connect(const geminid_session_options* options,
                                     geminid_session** session, geminid_error* error);
// Sets *session to NULL. The session ends with the last engine that uses it. `session` may be NULL.
void geminid_session_free(geminid_session** session);

// A JSON object: socket, id, is_successor, owns_daemon (the daemon ends with the process),
// arena_bytes, and the device's index, kind, name, uuid and capacity_bytes. For geminid_free.
geminid_code geminid_session_describe(geminid_session* session, char** json, geminid_error* error);
// UNAVAILABLE once the daemon has ended.
geminid_code geminid_session_health(geminid_session* session, geminid_error* error);
// Host memory for the caller's notes; lives as long as the session. If an earlier process had the
// session (keep_on_death), the memory has what that process left under this name and size, and
// *found is not 0; else zeros. On all ranks, before geminid_engine_create, which frees the rest.
geminid_code geminid_session_hold(geminid_session* session, const char* name, uint64_t bytes,
                                  void** address, int* found, geminid_error* error);
// geminid::Session::LeaveToSuccessor.
geminid_code geminid_session_leave(geminid_session* session, geminid_error* error);
// A JSON array of the ranks of a run that the daemon at `socket` has of this user: rank,
// world_size, step, device, device_bytes (of the arena), host_bytes, pid, and is_left. is_left: the
// process has died; a process that connects as this rank of this world gets its memory. `job` may
// be NULL. For geminid_free. DEADLINE_EXCEEDED if no daemon answers in time.
geminid_code geminid_run_ranks(const char* socket, const char* job, const char* run,
                               double timeout_seconds, char** json, geminid_error* error);

// --- ranks: the communicator of a job ------------------------------------------------------------

typedef struct geminid_ranks geminid_ranks;

enum geminid_backends {
  GEMINID_BACKEND_AUTO = 0,
  GEMINID_BACKEND_SHM = 1,
  GEMINID_BACKEND_TCP = 2
};

// geminid::collectives::RankInfo and ConnectOptions.
typedef struct geminid_ranks_options {
  size_t struct_size;
  // Not 0: rank, sizes, address, port and job come from the variables that the launcher has set
  // (geminid/rank_info.h); the fields below are ignored.
  int32_t from_environment;
  int32_t rank, world_size;
  int32_t local_rank, local_world_size;  // local_world_size 0: unknown
  int32_t backend;
  uint16_t master_port;
  const char* master_address;
  const char* job;
  const char* name;
  const char* interface_address;
  double timeout_seconds;
  double connect_timeout_seconds;
} geminid_ranks_options;

// The options of a single rank.
void geminid_ranks_options_init(geminid_ranks_options* options, size_t struct_size);
// Blocks until all ranks have come.
geminid_code geminid_ranks_connect(const geminid_ranks_options* options, geminid_ranks** ranks,
                                   geminid_error* error);
void geminid_ranks_free(geminid_ranks** ranks);

typedef struct geminid_place {
  size_t struct_size;
  int32_t rank, world_size;
  int32_t local_rank, local_world_size;
} geminid_place;
void geminid_place_init(geminid_place* place, size_t struct_size);
geminid_code geminid_ranks_place(geminid_ranks* ranks, geminid_place* place, geminid_error* error);
// Adds up `values` over the ranks, in rank order.
geminid_code geminid_ranks_sum(geminid_ranks* ranks, double* values, size_t count,
                               geminid_error* error);
geminid_code geminid_ranks_barrier(geminid_ranks* ranks, geminid_error* error);
// Rank `from` sends `count` bytes to every other rank.
geminid_code geminid_ranks_broadcast(geminid_ranks* ranks, void* bytes, size_t count, int32_t from,
                                     geminid_error* error);

// --- engines -------------------------------------------------------------------------------------

typedef struct geminid_engine geminid_engine;

enum geminid_data_types { GEMINID_DEFAULT_TYPE = 0, GEMINID_BFLOAT16 = 1, GEMINID_FLOAT32 = 2 };
// For frozen parameters only (geminid/data_type.h).
enum geminid_frozen_types { GEMINID_FLOAT16 = 3, GEMINID_INT8 = 4, GEMINID_UINT8 = 5 };

// geminid::zero::Parameter. A parameter's number is its index in the array.
typedef struct geminid_parameter {
  size_t struct_size;
  const char* name;
  const int64_t* shape;
  size_t dimensions;
  int32_t data_type;  // GEMINID_DEFAULT_TYPE: that of the options
  int32_t trainable;
  int32_t decay;
  int32_t backward_uses;
  int32_t separate_gradient;
  int32_t update_without_gradient;
  int64_t unit;         // -1: none
  double weight_decay;  // NAN: the optimizer's
  double learning_rate_scale;
  uint64_t group;
  int32_t orthogonal;
} geminid_parameter;
void geminid_parameter_init(geminid_parameter* parameter, size_t struct_size);

enum geminid_optimizers {
  GEMINID_ADAMW = 0,
  GEMINID_ADAM = 1,
  GEMINID_LAMB = 2,
  GEMINID_LARS = 3,
  GEMINID_SGD = 4,
  GEMINID_ADAGRAD = 5,
  GEMINID_LION = 6,
  GEMINID_ADAFACTOR = 7,
  GEMINID_CAME = 8,
  GEMINID_MUON = 9
};
enum geminid_muon_rates { GEMINID_MUON_AS_ADAMW = 0, GEMINID_MUON_ORIGINAL = 1 };

// The options of all optimizers in geminid/optimizer.h; each reads those that it has there.
typedef struct geminid_optimizer {
  size_t struct_size;
  int32_t kind;
  int32_t decoupled, bias_correction, grad_averaging, always_adapt;
  int32_t nesterov, decay_after_momentum;
  int32_t relative_step, warmup_init, scale_parameter;
  double beta1, beta2, beta3;
  double epsilon, epsilon1, epsilon2;
  double weight_decay;
  double max_grad_norm;
  double momentum;
  double dampening;
  double trust_coefficient;
  double trust_limit;
  double rate_decay;
  double clip_threshold;
  double decay_exponent;
  int32_t muon_rate;  // of enum geminid_muon_rates
} geminid_optimizer;

// The defaults of `kind`. geminid_engine_create refuses an unknown kind.
void geminid_optimizer_init(geminid_optimizer* optimizer, size_t struct_size, int32_t kind);

// geminid::LossScalerOptions.
typedef struct geminid_loss_scaler {
  size_t struct_size;
  double initial_scale, growth_factor, backoff_factor, min_scale, max_scale;
  uint32_t growth_interval, hysteresis;
} geminid_loss_scaler;
void geminid_loss_scaler_init(geminid_loss_scaler* scaler, size_t struct_size);

enum geminid_stages {
  GEMINID_STAGE_STATE = 1,
  GEMINID_STAGE_GRADIENTS = 2,
  GEMINID_STAGE_WEIGHTS = 3
};
enum geminid_placements {
  GEMINID_PLACE_DEVICE = 0,
  GEMINID_PLACE_HOST = 1,
  GEMINID_PLACE_AUTO = 2
};
enum geminid_state_placements {
  GEMINID_STATE_AUTO = 0,
  GEMINID_STATE_ON_HOST = 1,
  GEMINID_STATE_ON_DEVICE = 2,
  GEMINID_STATE_SHARE = 3,
  GEMINID_STATE_STREAMED = 4,
  GEMINID_STATE_ON_DISK = 5
};
enum geminid_gradient_scales { GEMINID_GRADIENT_MEAN = 0, GEMINID_GRADIENT_SUM = 1 };
enum geminid_update_times { GEMINID_UPDATE_AFTER_STEP = 0, GEMINID_UPDATE_IN_BACKWARD = 1 };
// What to do about a gradient that is not finite (geminid::zero::NotFinite).
enum geminid_not_finite {
  GEMINID_NOT_FINITE_SKIP = 0,
  GEMINID_NOT_FINITE_WRITE = 1,
  GEMINID_NOT_FINITE_FAIL = 2
};

// geminid::zero::Options.
typedef struct geminid_engine_options {
  size_t struct_size;
  const geminid_optimizer* optimizer;      // NULL: AdamW
  const geminid_loss_scaler* loss_scaler;  // NULL: none
  int32_t data_type;
  int32_t stage;
  int32_t placement;
  int32_t state_placement;
  int32_t gradient_scale;
  int32_t update;
  int32_t not_finite;
  int32_t accumulate;
  int32_t stable_addresses;
  int32_t max_lookahead_moments;
  int32_t update_threads;
  int32_t resume;
  double state_share;
  double clip_norm;
  double timeout_seconds;
  uint64_t chunk_elements;
  int32_t state_type;  // of the optimizer's arrays: GEMINID_FLOAT32 or GEMINID_BFLOAT16
  // geminid::zero::StateDisk, with GEMINID_STATE_ON_DISK or _AUTO. The folders are copied.
  const char* const* state_disk_folders;
  size_t state_disk_folder_count;
  uint64_t state_disk_limit_bytes;
  uint64_t state_disk_endurance_bytes;
} geminid_engine_options;
void geminid_engine_options_init(geminid_engine_options* options, size_t struct_size);

// The array's elements are `parameters[0].struct_size` bytes apart; all must state that size.
geminid_code geminid_engine_create(geminid_session* session, geminid_ranks* ranks,
                                   const geminid_parameter* parameters, size_t parameter_count,
                                   const geminid_engine_options* options, geminid_engine** engine,
                                   geminid_error* error);
void geminid_engine_free(geminid_engine** engine);
// OK, or the error that the engine failed with. Never waits, even for another thread's call.
geminid_code geminid_engine_health(geminid_engine* engine, geminid_error* error);
// The device memory of an operation with `parameters`, and with the gradients of `gradients`.
geminid_code geminid_engine_device_bytes(geminid_engine* engine, const uint32_t* parameters,
                                         size_t parameter_count, const uint32_t* gradients,
                                         size_t gradient_count, uint64_t* bytes,
                                         geminid_error* error);

// --- values and state ----------------------------------------------------------------------------

// The value in fp32, and the optimizer's state: up to two arrays.
enum geminid_state_kinds { GEMINID_VALUE = 0, GEMINID_EXP_AVG = 1, GEMINID_EXP_AVG_SQ = 2 };

// Writes `count` values of a parameter from its element `first` on. Must neither call the engine
// nor free it. If it returns other than 0 or throws, geminid_engine_initialize returns CANCELLED;
// initialize again before the first micro-batch.
typedef int geminid_fill(void* context, uint32_t parameter, uint64_t first, float* values,
                         uint64_t count);

// Calls `fill` on this thread for the elements of this rank's shard. All ranks must call it, and
// wait for each other. If it fails on one rank, the others return ABORTED and name that rank.
geminid_code geminid_engine_initialize(geminid_engine* engine, geminid_fill* fill, void* context,
                                       geminid_error* error);

typedef struct geminid_range {
  uint64_t offset, elements;
} geminid_range;

// This rank's ranges of a parameter. *count is their number; the first `capacity` of them are
// written. With capacity 0 `ranges` may be NULL.
geminid_code geminid_engine_shard(geminid_engine* engine, uint32_t parameter, geminid_range* ranges,
                                  size_t capacity, size_t* count, geminid_error* error);
geminid_code geminid_engine_has_state(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                      int* has_state, geminid_error* error);
geminid_code geminid_engine_read_shard(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                       uint64_t offset, float* values, uint64_t count,
                                       geminid_error* error);
geminid_code geminid_engine_write_shard(geminid_engine* engine, uint32_t parameter, int32_t kind,
                                        uint64_t offset, const float* values, uint64_t count,
                                        geminid_error* error);
// The whole fp32 value. `count` must be the parameter's elements. All ranks must call it.
geminid_code geminid_engine_read_parameter(geminid_engine* engine, uint32_t parameter,
                                           float* values, uint64_t count, geminid_error* error);

// geminid::zero::Progress. `tensor_state` is the caller's memory of `tensor_state_capacity` bytes.
// A progress whose tensor_state did not fit cannot be restored.
typedef struct geminid_progress {
  size_t struct_size;
  uint64_t step, updates;
  double loss_scale;
  uint32_t good_steps, overflows;
  void* tensor_state;
  size_t tensor_state_capacity;
  size_t tensor_state_bytes;
} geminid_progress;
void geminid_progress_init(geminid_progress* progress, size_t struct_size);
// Writes as much of tensor_state as fits; tensor_state_bytes is its full size.
geminid_code geminid_engine_get_progress(geminid_engine* engine, geminid_progress* progress,
                                         geminid_error* error);
geminid_code geminid_engine_restore(geminid_engine* engine, const geminid_progress* progress,
                                    geminid_error* error);

// geminid::zero::Resumed.
typedef struct geminid_resumed {
  size_t struct_size;
  int32_t resumed;  // 0: the run began from scratch, and the other fields are undefined
  int32_t was_behind;
  uint64_t step;
  uint64_t data_position;
  uint64_t random_state[4];
  uint64_t granules_updated;
} geminid_resumed;
void geminid_resumed_init(geminid_resumed* resumed, size_t struct_size);
geminid_code geminid_engine_resumed(geminid_engine* engine, geminid_resumed* resumed,
                                    geminid_error* error);

// --- a step --------------------------------------------------------------------------------------

enum geminid_passes { GEMINID_FORWARD = 0, GEMINID_BACKWARD = 1, GEMINID_EVALUATE = 2 };

geminid_code geminid_engine_begin_micro_batch(geminid_engine* engine, geminid_error* error);
geminid_code geminid_engine_cancel_micro_batch(geminid_engine* engine, geminid_error* error);

// Begins an operation: its parameters are on the device until it is finished.
geminid_code geminid_engine_use(geminid_engine* engine, int32_t pass, const uint32_t* parameters,
                                size_t parameter_count, uint64_t stream, uint64_t* operation,
                                geminid_error* error);
// The tensor of a parameter of an open operation, row-major and aligned to 64 bytes.
geminid_code geminid_engine_weight(geminid_engine* engine, uint64_t operation, uint32_t parameter,
                                   const void** address, geminid_error* error);
// Copies weights to the caller's memory, on the device or not, in the order of Use's stream.
geminid_code geminid_engine_copy_weights(geminid_engine* engine, uint64_t operation,
                                         const uint32_t* parameters, void* const* to, size_t count,
                                         geminid_error* error);
// The address for the gradient. *accumulates not 0: add to the contents instead of overwriting.
geminid_code geminid_engine_gradient(geminid_engine* engine, uint64_t operation, uint32_t parameter,
                                     void** address, int* accumulates, geminid_error* error);
geminid_code geminid_engine_gradient_written(geminid_engine* engine, uint64_t operation,
                                             uint32_t parameter, geminid_error* error);
geminid_code geminid_engine_finish(geminid_engine* engine, uint64_t operation, uint64_t stream,
                                   geminid_error* error);
// Finishes all open operations, of all threads. Returns the first error; finishes the rest too.
geminid_code geminid_engine_finish_all(geminid_engine* engine, uint64_t stream,
                                       geminid_error* error);

// The parameter's address whenever it is on the device; NULL without stable_addresses.
geminid_code geminid_engine_stable_address(geminid_engine* engine, uint32_t parameter,
                                           const void** address, geminid_error* error);

// Adds a whole gradient, copied before this returns; with a stream other than 0, in its order.
geminid_code geminid_engine_add_gradient(geminid_engine* engine, uint32_t parameter,
                                         const void* gradient, uint64_t bytes, int32_t data_type,
                                         uint64_t stream, geminid_error* error);
geminid_code geminid_engine_gradient_norm(geminid_engine* engine, double* norm,
                                          geminid_error* error);
// This rank's shards of gradients, between geminid_engine_gradient_norm and geminid_engine_step.
geminid_code geminid_engine_read_gradient(geminid_engine* engine, uint32_t parameter,
                                          uint64_t offset, float* values, uint64_t count,
                                          geminid_error* error);
geminid_code geminid_engine_write_gradient(geminid_engine* engine, uint32_t parameter,
                                           uint64_t offset, const float* values, uint64_t count,
                                           geminid_error* error);
geminid_code geminid_engine_loss_scale(geminid_engine* engine, double* scale, geminid_error* error);

// geminid::zero::Engine::GroupInput.
typedef struct geminid_group {
  size_t struct_size;
  double learning_rate;
  double weight_decay;           // NAN: the parameters' own
  double beta1, beta2, epsilon;  // NAN: the optimizer's
} geminid_group;
void geminid_group_init(geminid_group* group, size_t struct_size);

// geminid::zero::Engine::StepInput. `groups` is an array like that of geminid_engine_create.
typedef struct geminid_step_input {
  size_t struct_size;
  const geminid_group* groups;  // NULL: learning_rate for all parameters
  size_t group_count;
  double learning_rate;
  double clip_norm;      // NAN: that of the options
  double gradient_norm;  // NAN: the engine's own
  uint64_t data_position;
  uint64_t random_state[4];
  double gradient_scale;  // a factor that the gradients contain; usually 1
} geminid_step_input;
void geminid_step_input_init(geminid_step_input* input, size_t struct_size);

// geminid::zero::StepResult.
typedef struct geminid_step_result {
  size_t struct_size;
  uint64_t step;
  double gradient_norm;
  double clip_coefficient;
  double loss_scale;
  int32_t overflow;
  int32_t wait_ended;
} geminid_step_result;
void geminid_step_result_init(geminid_step_result* result, size_t struct_size);

// Needed with GEMINID_UPDATE_IN_BACKWARD only.
geminid_code geminid_engine_begin_step(geminid_engine* engine, const geminid_step_input* input,
                                       geminid_error* error);
// `result` may be NULL.
geminid_code geminid_engine_step(geminid_engine* engine, const geminid_step_input* input,
                                 geminid_step_result* result, geminid_error* error);
geminid_code geminid_engine_synchronize(geminid_engine* engine, geminid_error* error);

// --- other device memory -------------------------------------------------------------------------

geminid_code geminid_engine_allocate(geminid_engine* engine, uint64_t bytes, uint64_t* block,
                                     void** address, geminid_error* error);
geminid_code geminid_engine_release(geminid_engine* engine, uint64_t block, geminid_error* error);
geminid_code geminid_engine_report_workspace(geminid_engine* engine, uint64_t bytes,
                                             geminid_error* error);

// --- activations in host memory ------------------------------------------------------------------

// geminid::zero::ActivationStoreOptions.
typedef struct geminid_activation_store_options {
  size_t struct_size;
  uint64_t place_bytes;
  uint32_t places;
} geminid_activation_store_options;
void geminid_activation_store_options_init(geminid_activation_store_options* options,
                                           size_t struct_size);

// geminid/activation_store.h describes the four functions. On all ranks, before the first
// micro-batch. The engine owns its store. Without a store the others return FAILED_PRECONDITION.
geminid_code geminid_engine_make_activation_store(geminid_engine* engine,
                                                  const geminid_activation_store_options* options,
                                                  geminid_error* error);
// The engine never reuses an item's number. Freeing the engine drops all items.
geminid_code geminid_engine_save_activation(geminid_engine* engine, const void* from,
                                            uint64_t bytes, uint64_t stream, uint64_t* item,
                                            geminid_error* error);
geminid_code geminid_engine_load_activation(geminid_engine* engine, uint64_t item, void* to,
                                            uint64_t bytes, uint64_t stream, geminid_error* error);
// Never waits: a garbage collector may call it too, on any thread.
geminid_code geminid_engine_drop_activation(geminid_engine* engine, uint64_t item,
                                            geminid_error* error);

// --- numbers -------------------------------------------------------------------------------------

// geminid::zero::Statistics as a JSON object, with the plan's explanation. For geminid_free.
geminid_code geminid_engine_statistics(geminid_engine* engine, char** json, geminid_error* error);
// The plan that training follows, moment by moment, as JSON too; null if there is none.
geminid_code geminid_engine_plan(geminid_engine* engine, char** json, geminid_error* error);

// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // GEMINID_C_API_H_
