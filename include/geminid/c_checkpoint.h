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
geminid_code geminid_engine_save(geminid_engine* engine, const char* folder, uint64_t keep,
                                 uint64_t data_position, char** path, geminid_error* error);
// Loads the newest checkpoint in `folder`, or `folder` itself. `data_position` may be NULL.
geminid_code geminid_engine_load(geminid_engine* engine, const char* folder,
                                 uint64_t* data_position, geminid_error* error);

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
