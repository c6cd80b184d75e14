#include "client/checkpoint/newest.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/checkpoint/checked_files.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/run_record.h"

namespace geminid::checkpoint {
namespace {

constexpr size_t kRecordBytesMax = size_t{1} << 20;

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool IsWhole(const std::string& checkpoint) {
  const absl::StatusOr<std::string> text =
      base::ReadFile(absl::StrCat(checkpoint, "/", kRecordName), kRecordBytesMax);
  if (!text.ok()) return false;
  const absl::StatusOr<RunRecord> record = ReadRecord(*text);
  if (!record.ok()) return false;
  absl::StatusOr<CheckedFileRanges> written = ReadAllChecksums(checkpoint, record->ranks);
  return written.ok() && CheckedFiles::Open(checkpoint, *std::move(written)).ok();
}

absl::Status NoCheckpoint(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (name.starts_with("step-")) {
    return absl::NotFoundError(absl::StrCat("'", folder, "' holds no checkpoint: it lacks ",
                                            kRecordName,
                                            "; move this folder away to begin anew, or give "
                                            "the folder of another checkpoint"));
  }
  return absl::NotFoundError(
      absl::StrCat("'", folder, "' holds no checkpoint: it has neither ", kRecordName,
                   " nor folders of steps, such as ", NameOfStep(20),
                   "; give the folder that the run saved to, or one of its steps"));
}

}  // namespace

bool HasRecord(const std::string& checkpoint) {
  return Exists(absl::StrCat(checkpoint, "/", kRecordName));
}

bool IsHealthy(const std::string& checkpoint) {
  const absl::StatusOr<std::string> text =
      base::ReadFile(absl::StrCat(checkpoint, "/", kRecordName), kRecordBytesMax);
  if (!text.ok()) return true;
  const absl::StatusOr<RunRecord> record = ReadRecord(*text);
  return !record.ok() || record->healthy;
}

absl::StatusOr<ChosenCheckpoint> ChooseNewest(const std::string& folder) {
  if (HasRecord(folder)) return ChosenCheckpoint{folder, "", ""};
  GEMINID_ASSIGN_OR_RETURN(std::vector<std::string> names, FinishedIn(folder));
  if (names.empty()) return NoCheckpoint(folder);
  const auto path_of = [&](const std::string& name) { return absl::StrCat(folder, "/", name); };
  const auto has_record = [&](const std::string& name) { return HasRecord(path_of(name)); };
  std::string without_record;
  if (std::ranges::any_of(names, has_record)) {
    if (!has_record(names.back())) without_record = path_of(names.back());
    std::erase_if(names, [&](const std::string& name) { return !has_record(name); });
  }
  const auto healthy = std::find_if(names.rbegin(), names.rend(),
                                    [&](const auto& name) { return IsHealthy(path_of(name)); });
  const std::string newest = path_of(names.back());
  if (healthy == names.rend() || healthy == names.rbegin()) {
    return ChosenCheckpoint{newest, "", without_record};
  }
  return ChosenCheckpoint{path_of(*healthy), newest, without_record};
}

std::string WholeOneBefore(const std::string& checkpoint) {
  const std::filesystem::path path(checkpoint);
  const std::string folder = path.parent_path().string();
  const absl::StatusOr<std::vector<std::string>> names = FinishedIn(folder);
  if (!names.ok()) return "";
  const auto at = std::ranges::find(*names, path.filename().string());
  if (at == names->end()) return "";
  for (auto before = std::make_reverse_iterator(at); before != names->rend(); ++before) {
    std::string older = absl::StrCat(folder, "/", *before);
    if (IsHealthy(older) && IsWhole(older)) return older;
  }
  return "";
}

namespace {

constexpr char kWhatToGive[] =
    "give the folder of a checkpoint, of several checkpoints, or of a Hugging Face model";

// What to do with a folder that has weights in another form.
std::string AdviceWithoutWeights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) {
      return absl::StrCat("convert '", name,
                          "' with transformers: from_pretrained(), then save_pretrained()");
    }
    if (name.starts_with(absl::StrCat(kModelPrefix, "-")) && name.ends_with(".safetensors")) {
      return absl::StrCat(
          "it has '", name, "', but no ", kModelPrefix,
          ".safetensors.index.json, which names the file of each tensor; copy that index, too");
    }
  }
  return kWhatToGive;
}

}  // namespace

absl::StatusOr<std::string> FolderOfValues(const std::string& folder) {
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0) {
    if (errno != ENOENT) return base::SystemError(errno, "look it up", folder);
    return absl::NotFoundError(absl::StrCat("'", folder, "' does not exist; ", kWhatToGive));
  }
  if (!S_ISDIR(found.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", folder, "' is not a folder; ", kWhatToGive));
  }
  const std::string weights = absl::StrCat(kModelPrefix, ".safetensors");
  if (Exists(absl::StrCat(folder, "/", weights)) ||
      Exists(absl::StrCat(folder, "/", weights, ".index.json"))) {
    return folder;
  }
  const absl::StatusOr<ChosenCheckpoint> chosen = ChooseNewest(folder);
  if (chosen.ok()) return chosen->path;
  if (!absl::IsNotFound(chosen.status())) return chosen.status();
  return absl::NotFoundError(
      absl::StrCat("'", folder, "' has no ", weights, "; ", AdviceWithoutWeights(folder)));
}

}  // namespace geminid::checkpoint
