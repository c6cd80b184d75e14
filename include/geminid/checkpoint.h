// Checkpoints: a training run on disk, saved while training continues.
//
//   auto saver = checkpoint::Saver::Create(engine, communicator, parameters, {.folder = "run"});
//   ... engine->Step(...);  saver->Save(run);        // begins; training goes on
//   checkpoint::Load("run", engine, communicator, parameters);   // in a new process
//
// A checkpoint is a folder "step-000000020" in the saver's folder:
//
//   model.safetensors              the fp32 values by name, as Hugging Face's tools read them; or
//   model-00001-of-00003...        several files and model.safetensors.index.json
//   optimizer.safetensors          "exp_avg.NAME", "exp_avg_sq.NAME" of trained parameters
//   state.json                     step, loss scale, random state, data position, health
//   checksums-00000-of-00002...    of every byte of the other files, by the rank that wrote it
//
// All ranks write their shards into the same files, so the folder must be on a file system that all
// of them share. The folder appears under its name atomically, when everything in it is on the
// disk: a kill at any time leaves the checkpoint before it. Any number of ranks can load it, with
// any chunk size and placement.
//
// `state` is a zero::Engine, or an object that stands for several (geminid/model_state.h).
//
// Threads: used by one thread at a time. All ranks make the same calls, between steps.
#ifndef GEMINID_CHECKPOINT_H_
#define GEMINID_CHECKPOINT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/export.h"
#include "geminid/zero.h"

namespace geminid::checkpoint {

// State of the trainer that resuming needs, besides the engine's.
struct RunState {
  uint64_t data_position = 0;
  std::array<uint64_t, 4> random_state = {};
  friend bool operator==(const RunState&, const RunState&) = default;
};

// The size of Hugging Face's own model files.
inline constexpr uint64_t kDefaultFileBytes = 5'000'000'000;

struct SaverOptions {
  std::string folder{};  // created if it does not exist
  // How many checkpoints stay. Others are removed when a new one is complete, or before if the disk
  // is full. The newest healthy one always stays (Health). 0: all.
  uint64_t keep = 2;
  // Names of checkpoints in the folder that may be removed, the first candidates first; the saver's
  // own ones come after them. Unset: all checkpoints in the folder, by step. Anything else that has
  // the name of a step becomes NAME.kept when that step is saved, and is never removed.
  std::optional<std::vector<std::string>> adopts{};
  uint64_t max_file_bytes = kDefaultFileBytes;  // of tensors; a larger tensor gets its own file
  // Small files to write beside the tensors, by name, such as the model's "config.json".
  std::map<std::string, std::string> texts{};
};

// The trainer's knowledge of the state that it saves. kDiverged: its last loss or gradient norm was
// not finite.
enum class Health : uint8_t { kHealthy, kDiverged };

class GEMINID_EXPORT Saver {
 public:
  // `parameters` are those of the state. State and communicator outlive the saver. INVALID_ARGUMENT
  // for a name that a file cannot hold; other errors come from creating the folder.
  static absl::StatusOr<std::unique_ptr<Saver>> Create(zero::ModelState* state,
                                                       collectives::Communicator* communicator,
                                                       std::vector<zero::Parameter> parameters,
                                                       SaverOptions options);
  ~Saver();  // waits for the save in progress
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to save the state of the last Step. First waits for the previous save, and returns its
  // error. All ranks agree on each error: the failed rank returns its own, others return one with
  // the same code that has the rank and its reason. FAILED_PRECONDITION names ranks that call this
  // after different steps, and INVALID_ARGUMENT ranks that use weights instead (ModelState::Meet),
  // which ends the engine. After another error the checkpoint gets no name and nothing is removed
  // for it; the engine and older checkpoints are unharmed, and the next Save starts afresh.
  // RESOURCE_EXHAUSTED: the disk is full, and nothing may be removed.
  absl::Status Save(const RunState& run, Health health = Health::kHealthy);

  // Waits until the last save is on the disk. Returns its folder; empty: nothing was saved.
  absl::StatusOr<std::string> Wait();

 private:
  class Impl;
  explicit Saver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct Loaded {
  std::string folder;  // of the checkpoint
  zero::Progress progress;
  RunState run;
};

// Loads a checkpoint, or the one that Newest chooses in a saver's folder, into an engine before
// its first micro-batch. With the same number of ranks, its later steps are bit-identical to those
// that the saved run would have made; with another number it begins from the same values. All
// ranks agree on errors, as for Saver::Save, and on the step. NOT_FOUND if there is none.
// DATA_LOSS names file, tensor and damage: truncated, altered, missing, or of another shape.
// FAILED_PRECONDITION if it has state that this run's optimizer does not have, or parameters that
// the model does not have. Such an error, NOT_FOUND, and one of a call at the wrong time change
// nothing. Bytes are compared with their checksums while they go into the engine. After an error
// that this finds, the values are a mixture, and the engine is as after ModelState::Invalidate:
// load another checkpoint, call Initialize, or end.
GEMINID_EXPORT absl::StatusOr<Loaded> Load(const std::string& folder, zero::ModelState* state,
                                           collectives::Communicator* communicator,
                                           const std::vector<zero::Parameter>& parameters);

// Loads only values, from a folder with model.safetensors or model.safetensors.index.json, or from
// the one that Newest chooses in a saver's folder: fp32, bf16 or fp16. `name_of` returns a
// parameter's name there; a parameter with an empty name is not changed. Other tensors are ignored.
// A checkpoint's bytes, except the optimizer's, are compared with its checksums. Errors as for
// Load. Also DATA_LOSS for a value that is not finite, and INVALID_ARGUMENT for a folder with both
// a model.safetensors and an index of other files.
GEMINID_EXPORT absl::Status LoadValues(
    const std::string& folder, zero::ModelState* state,
    const std::vector<zero::Parameter>& parameters,
    const std::function<std::string(const zero::Parameter&)>& name_of);

enum class ExportType : uint8_t { kFloat32, kBFloat16, kFloat16 };

struct ExportOptions {
  std::string folder{};  // must not exist; its parent is created if necessary
  // The tensors' type, except for parameters with fp32 as Parameter::data_type: they stay fp32.
  ExportType type = ExportType::kFloat32;
  uint64_t max_file_bytes = kDefaultFileBytes;
  std::map<std::string, std::string> texts{};  // as in SaverOptions
  // A parameter's name in the files; empty: left out. Null: the parameter's own name.
  std::function<std::string(const zero::Parameter&)> name_of{};
  // Changes a parameter's values before they are written. Called on all ranks, which may read other
  // values of the engine. Null: no change.
  std::function<absl::Status(zero::ParameterId id, std::vector<float>* values)> adjust{};
};

// Writes the values as a plain Hugging Face folder: model.safetensors, or several files and an
// index, and the texts. All ranks must call it, between steps. Only one tensor at a time is in
// memory. The folder appears atomically, when everything in it is on the disk and no rank has
// failed. All ranks agree on each error, as for Saver::Save. ALREADY_EXISTS: the folder exists.
// INVALID_ARGUMENT names a tensor with values that the type cannot represent.
GEMINID_EXPORT absl::Status ExportValues(const ExportOptions& options, zero::ModelState* state,
                                         collectives::Communicator* communicator,
                                         const std::vector<zero::Parameter>& parameters);

// The newest healthy checkpoint in a saver's folder, or the newest if none is healthy (Health); or
// the folder itself if it is a checkpoint. NOT_FOUND if there is none.
GEMINID_EXPORT absl::StatusOr<std::string> Newest(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CHECKPOINT_H_
