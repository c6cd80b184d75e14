// A run's position: counters, checkpoints, and the state that an earlier process left.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/c_checkpoint.h"
#include "geminid/checkpoint.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

void PutProgress(const zero::Progress& from, geminid_progress* to) {
  geminid_progress filled = *to;
  filled.step = from.step;
  filled.updates = from.updates;
  filled.loss_scale = from.loss_scaler.scale;
  filled.good_steps = from.loss_scaler.good_steps;
  filled.overflows = from.loss_scaler.overflows;
  filled.tensor_state_bytes = from.tensor_state.size();
  const size_t fit = std::min(to->tensor_state_capacity, from.tensor_state.size());
  if (fit > 0) std::memcpy(to->tensor_state, from.tensor_state.data(), fit);
  Write(to, filled);
}

zero::Progress ToProgress(const geminid_progress& given) {
  zero::Progress progress;
  progress.step = given.step;
  progress.updates = given.updates;
  progress.loss_scaler = {given.loss_scale, given.good_steps, given.overflows};
  const auto* const state = static_cast<const std::byte*>(given.tensor_state);
  progress.tensor_state.assign(state, state + given.tensor_state_bytes);
  return progress;
}

absl::StatusOr<std::string> Folder(const char* folder) {
  GEMINID_RETURN_IF_ERROR(CheckGiven(folder, "folder"));
  return Text(folder, "folder");
}

absl::StatusOr<checkpoint::Health> ToHealth(int32_t health) {
  if (health == GEMINID_HEALTHY) return checkpoint::Health::kHealthy;
  if (health == GEMINID_DIVERGED) return checkpoint::Health::kDiverged;
  return absl::InvalidArgumentError(absl::StrCat("health ", health, " is none of geminid_healths"));
}

absl::StatusOr<std::vector<std::string>> ToNames(const char* const* names, size_t count) {
  std::vector<std::string> texts;
  if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(names, "adopts"));
  for (size_t i = 0; i < count; ++i) {
    GEMINID_RETURN_IF_ERROR(CheckGiven(names[i], "a name of adopts"));
    GEMINID_ASSIGN_OR_RETURN(texts.emplace_back(), Text(names[i], "a name of adopts"));
  }
  return texts;
}

// A name must stay in the checkpoint's folder, and checksums list names line by line.
absl::StatusOr<std::string> ToFileName(const char* given) {
  GEMINID_RETURN_IF_ERROR(CheckGiven(given, "a name of file_names"));
  GEMINID_ASSIGN_OR_RETURN(std::string name, Text(given, "a name of file_names"));
  if (!name.empty() && name.front() != '.' && name.find_first_of("/\n") == std::string::npos) {
    return name;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "file_names has '", name, "'; give the name of a file without a folder, such as torch.pt"));
}

absl::StatusOr<std::map<std::string, std::string>> ToFiles(const geminid_save_options& given) {
  std::map<std::string, std::string> files;
  if (given.file_count == 0) return files;
  GEMINID_RETURN_IF_ERROR(CheckGiven(given.file_names, "file_names"));
  GEMINID_RETURN_IF_ERROR(CheckGiven(given.file_contents, "file_contents"));
  GEMINID_RETURN_IF_ERROR(CheckGiven(given.file_bytes, "file_bytes"));
  for (size_t i = 0; i < given.file_count; ++i) {
    GEMINID_ASSIGN_OR_RETURN(std::string name, ToFileName(given.file_names[i]));
    std::string contents;
    if (given.file_bytes[i] > 0) {
      GEMINID_RETURN_IF_ERROR(CheckGiven(given.file_contents[i], "contents of file_contents"));
      contents.assign(static_cast<const char*>(given.file_contents[i]), given.file_bytes[i]);
    }
    if (const auto [at, added] = files.emplace(std::move(name), std::move(contents)); !added) {
      return absl::InvalidArgumentError(absl::StrCat("file_names has '", at->first, "' twice"));
    }
  }
  return files;
}

// Headers without files had all fields before `file_names`; fields that they lack are 0.
constexpr Growth<geminid_save_options> kGrowthOfSaveOptions = {
    .least = offsetof(geminid_save_options, file_names)};

absl::StatusOr<std::string> Save(EngineObject& object, const char* folder,
                                 const geminid_save_options& given) {
  checkpoint::SaverOptions options;
  GEMINID_ASSIGN_OR_RETURN(options.folder, Folder(folder));
  GEMINID_ASSIGN_OR_RETURN(const checkpoint::Health health, ToHealth(given.health));
  options.keep = given.keep;
  options.max_file_bytes = given.max_file_bytes;
  if (given.has_adopts != 0) {
    GEMINID_ASSIGN_OR_RETURN(options.adopts, ToNames(given.adopts, given.adopt_count));
  }
  GEMINID_ASSIGN_OR_RETURN(options.texts, ToFiles(given));
  checkpoint::RunState run = {.data_position = given.data_position};
  std::copy(std::begin(given.random_state), std::end(given.random_state), run.random_state.begin());
  GEMINID_ASSIGN_OR_RETURN(const auto saver,
                           checkpoint::Saver::Create(&object.engine(), object.ranks().Take().ranks,
                                                     object.parameters(), std::move(options)));
  GEMINID_RETURN_IF_ERROR(saver->Save(run, health));
  return saver->Wait();
}

absl::Status GivePath(const absl::StatusOr<std::string>& saved, char** path) {
  if (!saved.ok() || path == nullptr) return saved.status();
  GEMINID_ASSIGN_OR_RETURN(*path, NewText(*saved));
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::Loaded> Load(EngineObject& object, const char* folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::string from, Folder(folder));
  return checkpoint::Load(from, &object.engine(), object.ranks().Take().ranks, object.parameters());
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

void geminid_progress_init(geminid_progress* progress, size_t struct_size) {
  geminid_progress filled = {};
  filled.loss_scale = 1;
  Init(progress, struct_size, filled);
}

geminid_code geminid_engine_get_progress(geminid_engine* engine, geminid_progress* progress,
                                         geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(progress, "progress"));
    GEMINID_RETURN_IF_ERROR(CheckResult(progress, "progress"));
    if (progress->tensor_state_capacity > 0) {
      GEMINID_RETURN_IF_ERROR(CheckGiven(progress->tensor_state, "tensor_state"));
    }
    GEMINID_ASSIGN_OR_RETURN(const auto current, object.engine().GetProgress());
    PutProgress(current, progress);
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_restore(geminid_engine* engine, const geminid_progress* progress,
                                    geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const geminid_progress read, Read(progress, "progress"));
    const size_t capacity = read.tensor_state_capacity;  // 0: of a progress that nobody filled
    if (capacity > 0 && read.tensor_state_bytes > capacity) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor_state has ", capacity, " of the ", read.tensor_state_bytes,
          " bytes; call geminid_engine_get_progress with a buffer of tensor_state_bytes"));
    }
    if (read.tensor_state_bytes > 0) {
      GEMINID_RETURN_IF_ERROR(CheckGiven(read.tensor_state, "tensor_state"));
    }
    return object.engine().Restore(ToProgress(read));
  });
}

void geminid_resumed_init(geminid_resumed* resumed, size_t struct_size) {
  Init(resumed, struct_size, geminid_resumed{});
}

geminid_code geminid_engine_resumed(geminid_engine* engine, geminid_resumed* resumed,
                                    geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(resumed, "resumed"));
    GEMINID_RETURN_IF_ERROR(CheckResult(resumed, "resumed"));
    geminid_resumed filled = {};
    if (const auto found = object.engine().resumed(); found.has_value()) {
      filled.resumed = 1;
      filled.was_behind = found->was_behind ? 1 : 0;
      filled.step = found->step;
      filled.data_position = found->data_position;
      std::copy(found->random_state.begin(), found->random_state.end(), filled.random_state);
      filled.granules_updated = found->granules_updated;
    }
    Write(resumed, filled);
    return absl::OkStatus();
  });
}

void geminid_save_options_init(geminid_save_options* options, size_t struct_size) {
  geminid_save_options filled = {};
  filled.keep = geminid::checkpoint::SaverOptions().keep;
  filled.max_file_bytes = geminid::checkpoint::kDefaultFileBytes;
  Init(options, struct_size, filled);
}

geminid_code geminid_engine_save(geminid_engine* engine, const char* folder, uint64_t keep,
                                 uint64_t data_position, char** path, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) {
    geminid_save_options options;
    geminid_save_options_init(&options, sizeof options);
    options.keep = keep;
    options.data_position = data_position;
    return GivePath(Save(object, folder, options), path);
  });
}

geminid_code geminid_engine_save_with(geminid_engine* engine, const char* folder,
                                      const geminid_save_options* options, char** path,
                                      geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const geminid_save_options read,
                             Read(options, "options", kGrowthOfSaveOptions));
    return GivePath(Save(object, folder, read), path);
  });
}

geminid_code geminid_newest_checkpoint(const char* folder, char** path, geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const std::string from, Folder(folder));
    GEMINID_RETURN_IF_ERROR(CheckGiven(path, "path"));
    return GivePath(geminid::checkpoint::Newest(from), path);
  });
}

geminid_code geminid_engine_load(geminid_engine* engine, const char* folder,
                                 uint64_t* data_position, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto loaded, Load(object, folder));
    if (data_position != nullptr) *data_position = loaded.run.data_position;
    return absl::OkStatus();
  });
}

void geminid_run_state_init(geminid_run_state* run, size_t struct_size) {
  Init(run, struct_size, geminid_run_state{});
}

geminid_code geminid_engine_load_run(geminid_engine* engine, const char* folder,
                                     geminid_run_state* run, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckResult(run, "run"));
    GEMINID_ASSIGN_OR_RETURN(const auto loaded, Load(object, folder));
    geminid_run_state filled = {};
    filled.data_position = loaded.run.data_position;
    std::ranges::copy(loaded.run.random_state, filled.random_state);
    Write(run, filled);
    return absl::OkStatus();
  });
}
