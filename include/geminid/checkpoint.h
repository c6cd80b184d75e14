// Checkpoints: a training run on disk, saved while it goes on.
//
//   auto saver = checkpoint::Saver::Create(engine, communicator, parameters, {.folder = "run"});
//   ... engine->Step(...);  saver->Save(run);        // begins; training goes on
//   checkpoint::Load("run", engine, communicator, parameters);   // in a new process
//
// A checkpoint is a folder "step-000000020" in the saver's folder:
//
//   model.safetensors              the fp32 values by name, as Hugging Face's tools read them; or
//   model-00001-of-00003...        several files and model.safetensors.index.json
//   optimizer.safetensors          "exp_avg.NAME", "exp_avg_sq.NAME" of what is trained
//   state.json                     step, loss scale, random state, data position, health
//   checksums-00000-of-00002...    of every byte of the other files, by the rank that wrote it
//
// All ranks write into the same files, each its shards, so the folder must be on a file system that
// all of them see. The folder appears under its name in one instant, when everything in it is on
// the disk: a kill at any time leaves the one before. It can be loaded by any number of ranks, with
// any chunk size and placement.
//
// `state` is a zero::Engine, or what stands for several (geminid/model_state.h).
//
// Threads: one thread at a time. All ranks make the same calls, between steps.
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

// What a trainer must know to go on, beside what the engine does.
struct RunState {
  uint64_t data_position = 0;
  std::array<uint64_t, 4> random_state = {};
  friend bool operator==(const RunState&, const RunState&) = default;
};

// As Hugging Face's tools cut models.
inline constexpr uint64_t kDefaultFileBytes = 5'000'000'000;

struct SaverOptions {
  std::string folder{};  // made if need be
  // How many checkpoints stay: the others are removed after a new one is complete, and before where
  // the disk is full. The newest healthy one always stays (Health). 0: all.
  uint64_t keep = 2;
  // The checkpoints in the folder that may be removed so, by name, the first to go first; the
  // saver's own go after them. Unset: all that are there, by step.
  std::optional<std::vector<std::string>> adopts{};
  uint64_t max_file_bytes = kDefaultFileBytes;  // of tensors; a larger tensor has its own file
  // Small files to put beside them, by name, such as the model's "config.json".
  std::map<std::string, std::string> texts{};
};

// What a trainer knows of the state that it saves. kDiverged: its last loss or gradient norm was
// not finite.
enum class Health : uint8_t { kHealthy, kDiverged };

class GEMINID_EXPORT Saver {
 public:
  // `parameters` are the state's. State and communicator outlive it. INVALID_ARGUMENT for a name
  // that a file cannot hold; else what making the folder gives.
  static absl::StatusOr<std::unique_ptr<Saver>> Create(zero::ModelState* state,
                                                       collectives::Communicator* communicator,
                                                       std::vector<zero::Parameter> parameters,
                                                       SaverOptions options);
  ~Saver();  // waits for the save in progress
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Begins to save the state of the last Step. Waits for the save before, whose error it returns.
  // All ranks agree on each error: the rank that failed returns its own, the others one of the same
  // code that names the rank and gives its reason. FAILED_PRECONDITION names ranks that call this
  // after different steps. The checkpoint then gets no name, nothing is removed for it, and the
  // engine and the checkpoints before are unharmed; the next Save starts anew. RESOURCE_EXHAUSTED
  // when the disk is full and nothing may be removed.
  absl::Status Save(const RunState& run, Health health = Health::kHealthy);

  // Waits until the last save is on the disk. Its folder; empty when nothing was saved.
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

// Loads a checkpoint, or the one that Newest names in a saver's folder, into an engine before its
// first micro-batch. With the same number of ranks its steps have the bits from then on that the
// saved run's would have had; with another number of ranks it begins from the same values. All
// ranks agree on each error, as of Saver::Save, and on the step. NOT_FOUND when there is none.
// DATA_LOSS names the file and the tensor, and what is wrong: cut short, altered, missing, of
// another shape. FAILED_PRECONDITION where it has state that the optimizer of this run does not
// keep. The bytes are compared with their checksums as they go into the engine. So after such an
// error its values are neither the checkpoint's nor those before, and it is as after
// ModelState::Invalidate: load another one, Initialize, or end.
GEMINID_EXPORT absl::StatusOr<Loaded> Load(const std::string& folder, zero::ModelState* state,
                                           collectives::Communicator* communicator,
                                           const std::vector<zero::Parameter>& parameters);

// The values alone, from a folder with model.safetensors or model.safetensors.index.json, or from
// the one that Newest names in a saver's folder: fp32, bf16 or fp16. `name_of` says what a
// parameter is called there; one without a name is left as it is. Tensors that no parameter asks
// for are left alone. A checkpoint's bytes are compared with the checksums that lie beside them,
// but for the optimizer's. Errors as of Load; DATA_LOSS too for a value that is not finite;
// INVALID_ARGUMENT for a folder with both a model.safetensors and an index of other files.
GEMINID_EXPORT absl::Status LoadValues(
    const std::string& folder, zero::ModelState* state,
    const std::vector<zero::Parameter>& parameters,
    const std::function<std::string(const zero::Parameter&)>& name_of);

enum class ExportType : uint8_t { kFloat32, kBFloat16, kFloat16 };

struct ExportOptions {
  std::string folder{};  // that does not exist yet; the one above it is made if need be
  // Of the tensors, but for parameters that name fp32 themselves (Parameter::data_type): they stay.
  ExportType type = ExportType::kFloat32;
  uint64_t max_file_bytes = kDefaultFileBytes;
  std::map<std::string, std::string> texts{};  // as of SaverOptions
  // What a parameter is called there; empty: it is left out. Null: by its own name.
  std::function<std::string(const zero::Parameter&)> name_of{};
  // Changes a parameter's values before they are written. Called on all ranks, which may read
  // others of the engine. Null: as they are.
  std::function<absl::Status(zero::ParameterId id, std::vector<float>* values)> adjust{};
};

// Writes the values as a plain Hugging Face folder: model.safetensors, or several files and an
// index, and the texts. Between steps; all ranks must. One tensor at a time is in memory. The
// folder appears in one instant, when everything in it is on the disk and no rank has failed; all
// ranks agree on each error, as of Saver::Save. ALREADY_EXISTS for a folder that is there;
// INVALID_ARGUMENT names a tensor with values that the type cannot hold.
GEMINID_EXPORT absl::Status ExportValues(const ExportOptions& options, zero::ModelState* state,
                                         collectives::Communicator* communicator,
                                         const std::vector<zero::Parameter>& parameters);

// The newest healthy checkpoint in a saver's folder, or the newest if none is healthy (Health); or
// the folder itself when it is a checkpoint. NOT_FOUND.
GEMINID_EXPORT absl::StatusOr<std::string> Newest(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CHECKPOINT_H_
