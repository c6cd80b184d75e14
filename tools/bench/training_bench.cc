// The cost of a fifth of the memory: the same training, limited and unlimited, in turn.
//
// With all the memory that it wants, a run keeps its activations, while a limited one may offload
// or recompute them. So each limited run is compared with two others:
//
//   over_unlimited   its tokens per second over those of a run without a limit
//   over_same_work   the same, where the run without a limit treats activations as the limited
//                    one does. This is the cost of moving the weights alone or, if activations
//                    are offloaded, of moving both, because without a limit all have a place
//
// Each iteration is one run of each kind, so that a machine whose speed drifts slows all three.
// Counters are medians over the iterations; ratios are of one iteration. A run's first step, which
// is sampled and not planned, does not count. `stall_share` is the limited run's waiting time over
// the time of its steps.
#include <benchmark/benchmark.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tools/bench/size.h"

namespace geminid {
namespace {

namespace fs = std::filesystem;

const int kSteps = bench::Size(12, 2);
const int kRounds = bench::Size(3, 1);
// A fifth of each of two ranks' share of the model's state.
const std::string kModel = bench::Size<std::string>("gpt2-20m", "gpt2-tiny");
const std::string kFifth = "--device-memory " + bench::Size<std::string>("24MiB", "2MiB");

// Writes its own text, so that nothing needs to be installed: figures do not depend on the words.
void WriteText(const fs::path& path) {
  std::ofstream file(path);
  for (int line = 0; line < 40000; ++line) {
    file << "line " << line << " of a text whose words are of no account\n";
  }
}

std::string ProgramBeside(const char* name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

bool Train(const fs::path& folder, const std::string& flags, google::protobuf::Struct* report) {
  const fs::path file = folder / "report.json";
  const std::string command = ProgramBeside("geminid-train") + " --text " +
                              (folder / "text").string() + " --model " + kModel +
                              " --ranks 2 --batch 4 --steps " + std::to_string(kSteps) +
                              " --quiet --report " + file.string() + " " + flags;
  if (std::system(command.c_str()) != 0) return false;
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return google::protobuf::util::JsonStringToMessage(text.str(), report).ok();
}

double Number(const google::protobuf::Struct& report, const char* field) {
  return report.fields().at(field).number_value();
}

double Sum(const google::protobuf::Struct& report, const char* field) {
  double sum = 0;
  for (const auto& value : report.fields().at(field).list_value().values()) {
    sum += value.number_value();
  }
  return sum;
}

// Over the steps after the first.
double TokensPerSecond(const google::protobuf::Struct& report) {
  std::vector<double> seconds;
  for (const auto& value : report.fields().at("step_seconds").list_value().values()) {
    seconds.push_back(value.number_value());
  }
  seconds.erase(seconds.begin());
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return Number(report, "tokens_per_step") / seconds[seconds.size() / 2];
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The measurements of all iterations of a benchmark.
class Rounds {
 public:
  // False: a run failed, and has printed why.
  bool Run(const fs::path& folder, const std::string& limit) {
    google::protobuf::Struct limited, unlimited, same_work;
    if (!Train(folder, limit, &limited)) return false;
    const std::string how = limited.fields().at("activations").string_value();
    if (!Train(folder, "--device-memory unlimited", &unlimited) ||
        !Train(folder, "--device-memory unlimited --activations " + how, &same_work)) {
      return false;
    }
    Add("limited_tokens_per_second", TokensPerSecond(limited));
    Add("unlimited_tokens_per_second", TokensPerSecond(unlimited));
    Add("same_work_tokens_per_second", TokensPerSecond(same_work));
    Add("over_unlimited", TokensPerSecond(limited) / TokensPerSecond(unlimited));
    Add("over_same_work", TokensPerSecond(limited) / TokensPerSecond(same_work));
    Add("stall_share", Number(limited, "stall_seconds") / Sum(limited, "step_seconds"));
    Add("host_bytes_per_parameter", Number(limited, "host_bytes_per_parameter"));
    Add("state_over_device_memory", Number(limited, "model_state_bytes") /
                                        Number(limited, "world_size") /
                                        Number(limited, "device_bytes_limit"));
    return true;
  }

  void Report(benchmark::State& state) const {
    for (const auto& [name, values] : values_) state.counters[name] = Median(values);
  }

 private:
  void Add(const std::string& name, double value) { values_[name].push_back(value); }

  std::map<std::string, std::vector<double>> values_;
};

void BM_LimitedOverUnlimited(benchmark::State& state, const std::string& limit) {
  const fs::path folder =
      fs::temp_directory_path() / ("geminid-training-bench-" + std::to_string(getpid()));
  fs::create_directories(folder);
  WriteText(folder / "text");
  Rounds rounds;
  for (auto _ : state) {
    if (!rounds.Run(folder, limit)) {
      state.SkipWithError("geminid-train failed; its message is above");
      break;
    }
  }
  fs::remove_all(folder);
  rounds.Report(state);
}

void Register(const char* name, const std::string& limit) {
  benchmark::RegisterBenchmark((std::string("BM_LimitedOverUnlimited/") + name).c_str(),
                               BM_LimitedOverUnlimited, limit)
      ->Iterations(kRounds)
      ->Unit(benchmark::kSecond)
      ->UseRealTime();
}

}  // namespace
}  // namespace geminid

int main(int argc, char** argv) {
  geminid::Register("auto", geminid::kFifth);
  geminid::Register("auto_with_a_link_of_2_gigabytes_per_second",
                    geminid::kFifth + " --copy-bandwidth 2GB/s");
  geminid::Register("placement_cpu", geminid::kFifth + " --placement cpu");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
}
