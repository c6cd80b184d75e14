// Checkpoints and snapshots for the interface in C.
//
//   geminid_engine_step(engine, &input, NULL, error);
//   geminid_engine_start_snapshot(engine, sink, context, error);
//   ...                                                // the next steps
//   geminid_engine_wait_snapshot(engine, error);       // from here on the context may be freed
//
// A checkpoint is in files, and saving it waits for the disk. A snapshot is for callers with their
// own storage: it hands out the state of a step while training continues.
// geminid_engine_write_shard and geminid_engine_restore put the state back.
#ifndef GEMINID_C_CHECKPOINT_H_
#define GEMINID_C_CHECKPOINT_H_

#include "geminid/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names of C.

// Saves a checkpoint in `folder` (geminid/checkpoint.h) and waits until it is on the disk. *path,
// for geminid_free, is its folder; `path` may be NULL. `keep`: how many checkpoints stay, of all in
// `folder`, by step; 0: all. So give each run a folder of its own. A folder without a checkpoint
// that has the name of the step becomes NAME.kept.
// The checkpoint counts as healthy.
geminid_code geminid_engine_save(geminid_engine* engine, const char* folder, uint64_t keep,
                                 uint64_t data_position, char** path, geminid_error* error);

// geminid::checkpoint::Health. GEMINID_DIVERGED: the last loss or gradient norm was not finite.
enum geminid_healths { GEMINID_HEALTHY = 0, GEMINID_DIVERGED = 1 };

// geminid::checkpoint::SaverOptions and RunState.
typedef struct geminid_save_options {
  size_t struct_size;
  uint64_t keep;   // 2. The newest healthy checkpoint always stays; 0: all.
  int32_t health;  // of this checkpoint: geminid_healths
  // Not 0: only the checkpoints in `folder` that `adopts` names may be removed, the first
  // candidates first. A run lists those that it saved. 0: all in `folder`, by step.
  int32_t has_adopts;
  const char* const* adopts;  // such as "step-000000020"
  size_t adopt_count;
  uint64_t data_position;
  uint64_t random_state[4];
  uint64_t max_file_bytes;  // of tensors; a larger tensor gets its own file
  // Small files that rank 0 writes beside the tensors; checksums cover them. File i is called
  // file_names[i], without folders, and has file_bytes[i] bytes from file_contents[i].
  const char* const* file_names;
  const void* const* file_contents;
  const size_t* file_bytes;
  size_t file_count;
} geminid_save_options;
void geminid_save_options_init(geminid_save_options* options, size_t struct_size);
// geminid_engine_save with all of its options.
geminid_code geminid_engine_save_with(geminid_engine* engine, const char* folder,
                                      const geminid_save_options* options, char** path,
                                      geminid_error* error);

// The checkpoint that geminid_engine_load takes: the newest healthy one in `folder`, or the newest
// if none is healthy, or `folder` itself. *path, for geminid_free, is its folder. Checks no bytes.
// NOT_FOUND if there is none.
geminid_code geminid_newest_checkpoint(const char* folder, char** path, geminid_error* error);

// Loads the newest checkpoint in `folder`, or `folder` itself. `data_position` may be NULL.
geminid_code geminid_engine_load(geminid_engine* engine, const char* folder,
                                 uint64_t* data_position, geminid_error* error);

// geminid::checkpoint::RunState, as it was saved.
typedef struct geminid_run_state {
  size_t struct_size;
  uint64_t data_position;
  uint64_t random_state[4];
} geminid_run_state;
void geminid_run_state_init(geminid_run_state* run, size_t struct_size);
// geminid_engine_load with all of its results. `run` may be NULL.
geminid_code geminid_engine_load_run(geminid_engine* engine, const char* folder,
                                     geminid_run_state* run, geminid_error* error);

// Takes `count` fp32 values, from element `offset` on, of a parameter's state
// (geminid_state_kinds). Called on two threads at a time, not on the caller's; must neither call
// the engine nor free it. Not 0, or an exception: the snapshot ends, and
// geminid_engine_wait_snapshot returns CANCELLED.
typedef int geminid_sink(void* context, uint32_t parameter, int32_t kind, uint64_t offset,
                         const float* values, uint64_t count);

// Begins to hand this rank's shard of the last step's state to `sink`, each value once, in any
// order. Between steps, on all ranks. FAILED_PRECONDITION while another snapshot is in progress.
geminid_code geminid_engine_start_snapshot(geminid_engine* engine, geminid_sink* sink,
                                           void* context, geminid_error* error);
// Waits until the last value was handed out. Returns at once if no snapshot was begun.
geminid_code geminid_engine_wait_snapshot(geminid_engine* engine, geminid_error* error);

// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // GEMINID_C_CHECKPOINT_H_
