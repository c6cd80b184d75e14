#include "client/checkpoint/tensor_set.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "client/checkpoint/contents.h"

namespace geminid::checkpoint {
namespace {

constexpr size_t kIndexBytesMax = size_t{256} << 20;  // for a million tensors

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool IsNewer(const std::string& path, const std::string& other) {
  std::error_code error;
  const auto mine = std::filesystem::last_write_time(path, error);
  if (error) return false;
  const auto others = std::filesystem::last_write_time(other, error);
  return !error && mine > others;
}

}  // namespace

absl::StatusOr<TensorSet> TensorSet::Open(const std::string& folder, const std::string& prefix) {
  TensorSet set(folder);
  const std::string only = absl::StrCat(prefix, ".safetensors");
  const std::string index = absl::StrCat(folder, "/", only, ".index.json");
  if (!Exists(index)) {
    GEMINID_RETURN_IF_ERROR(set.OpenFile(only));
    for (const TensorEntry& tensor : set.files_.at(only).header().tensors) {
      set.file_of_[tensor.name] = only;
    }
    return set;
  }
  GEMINID_RETURN_IF_ERROR(set.OpenIndexed(index));
  const std::string whole = absl::StrCat(folder, "/", only);
  if (set.files_.contains(only) || !Exists(whole)) return set;
  const bool whole_is_newer = IsNewer(whole, index);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", folder, "' has both ", only, " and ", only, ".index.json, which names other files; ",
      whole_is_newer ? only : "the index", " is newer. Remove the one that is stale"));
}

absl::Status TensorSet::OpenIndexed(const std::string& index) {
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(index, kIndexBytesMax));
  absl::StatusOr<std::map<std::string, std::string>> files = ReadIndex(text);
  if (!files.ok()) return Named(index, files.status());
  file_of_ = *std::move(files);
  for (const auto& [tensor, file] : file_of_) {
    if (files_.contains(file)) continue;
    if (!Exists(absl::StrCat(folder_, "/", file))) {
      return absl::NotFoundError(
          absl::StrCat("'", index, "' names the file '", file,
                       "', which does not exist; the copy is incomplete: copy that file, too"));
    }
    GEMINID_RETURN_IF_ERROR(OpenFile(file));
  }
  return absl::OkStatus();
}

absl::Status TensorSet::OpenFile(const std::string& name) {
  absl::StatusOr<TensorFile> file = TensorFile::OpenToRead(absl::StrCat(folder_, "/", name));
  if (!file.ok()) return file.status();
  const TensorFile& kept = files_.emplace(name, *std::move(file)).first->second;
  for (const TensorEntry& tensor : kept.header().tensors) {
    entries_[{name, tensor.name}] = &tensor;
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorSet::Found> TensorSet::Find(const std::string& name) const {
  const auto in = file_of_.find(name);
  if (in != file_of_.end()) {
    const auto entry = entries_.find({in->second, name});
    if (entry != entries_.end()) return Found{&files_.at(in->second), entry->second};
    return absl::DataLossError(absl::StrCat("'", folder_, "': the index says that tensor '", name,
                                            "' is in '", in->second,
                                            "', which does not have it; one of them is stale"));
  }
  constexpr size_t kExamples = 3;
  std::vector<std::string> examples;
  for (const auto& [known, unused] : file_of_) {
    if (examples.size() < kExamples) examples.push_back(absl::StrCat("'", known, "'"));
  }
  return absl::DataLossError(absl::StrCat("'", folder_, "' has no tensor '", name, "'; it has ",
                                          file_of_.size(), ", among them ",
                                          absl::StrJoin(examples, ", ")));
}

}  // namespace geminid::checkpoint
