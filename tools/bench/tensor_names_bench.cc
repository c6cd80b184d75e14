// The cost per tensor of opening a folder of safetensors and finding each tensor by name. It should
// be the same among a hundred thousand tensors as among a thousand.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "client/checkpoint/tensor_file.h"
#include "client/checkpoint/tensor_set.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"

namespace geminid::checkpoint {
namespace {

using bench::Must;
constexpr size_t kExperts = 64;
constexpr size_t kTensorsOfAFile = 1000;

// Names as in models with many experts.
std::vector<std::string> Names(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(absl::StrCat("model.layers.", i / kExperts, ".block_sparse_moe.experts.",
                                 i % kExperts, ".w1.weight"));
  }
  return names;
}

class Folder {
 public:
  Folder()
      : path_(absl::StrCat(std::filesystem::temp_directory_path().string(),
                           "/geminid-names-XXXXXX")) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  // Each tensor has one element, so that the files hold little but names.
  void Write(const std::string& file, const std::vector<std::string>& names) const {
    std::vector<TensorEntry> entries;
    for (const std::string& name : names) entries.push_back({.name = name, .shape = {1}});
    const std::string path = absl::StrCat(path_, "/", file);
    (void)Must(TensorFile::Create(path, Must(LayOut(std::move(entries), {}))));
  }

  void WriteIndex(const std::map<std::string, std::string>& file_of) const {
    base::JsonWriter json;
    json.BeginObject().Key("weight_map").BeginObject();
    for (const auto& [name, file] : file_of) json.Key(name).Value(file);
    json.EndObject().EndObject();
    std::ofstream(absl::StrCat(path_, "/model.safetensors.index.json")) << json.text();
  }

 private:
  std::string path_;
};

void OpenAndFindAll(benchmark::State& state, const Folder& folder,
                    const std::vector<std::string>& names) {
  for (auto _ : state) {
    const TensorSet set = Must(TensorSet::Open(folder.path(), "model"));
    for (const std::string& name : names) benchmark::DoNotOptimize(Must(set.Find(name)).tensor);
  }
  state.counters["per_tensor"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(names.size()),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_NamesOfOneFile(benchmark::State& state) {
  const Folder folder;
  const std::vector<std::string> names = Names(static_cast<size_t>(state.range(0)));
  folder.Write("model.safetensors", names);
  OpenAndFindAll(state, folder, names);
}

void BM_NamesOfFilesWithAnIndex(benchmark::State& state) {
  const Folder folder;
  const std::vector<std::string> names = Names(static_cast<size_t>(state.range(0)));
  std::map<std::string, std::string> file_of;
  for (size_t first = 0; first < names.size(); first += kTensorsOfAFile) {
    const size_t end = std::min(names.size(), first + kTensorsOfAFile);
    const std::vector<std::string> here(names.begin() + static_cast<ptrdiff_t>(first),
                                        names.begin() + static_cast<ptrdiff_t>(end));
    const std::string file = absl::StrCat("model-", first / kTensorsOfAFile, ".safetensors");
    folder.Write(file, here);
    for (const std::string& name : here) file_of[name] = file;
  }
  folder.WriteIndex(file_of);
  OpenAndFindAll(state, folder, names);
}

const int64_t kMost = bench::Size<int64_t>(100'000, 1'000);
BENCHMARK(BM_NamesOfOneFile)->RangeMultiplier(10)->Range(1'000, kMost)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_NamesOfFilesWithAnIndex)
    ->RangeMultiplier(10)
    ->Range(1'000, kMost)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace geminid::checkpoint

BENCHMARK_MAIN();
