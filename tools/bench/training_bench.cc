// What a fifth of the memory costs: the same training, limited and unlimited, in turn.
//
// Each iteration is one pair of runs of geminid-train, so that a machine whose speed drifts slows
// both. Counters are medians over the pairs; `ratio` is that of the pairs' ratios. The first step
// of a run, which is sampled and not planned, does not count.
#include <benchmark/benchmark.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Fields = google::protobuf::Map<std::string, google::protobuf::Value>;

constexpr int kSteps = 12;
constexpr int kPairs = 3;

// A text of its own, so that nothing needs to be installed: the figures do not depend on its words.
void WriteText(const fs::path& path) {
  std::ofstream file(path);
  for (int line = 0; line < 40000; ++line) {
    file << "line " << line << " of a text whose words are of no account\n";
  }
}

std::string ProgramBeside(const char* name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

bool Run(const fs::path& folder, const std::string& flags, google::protobuf::Struct* report) {
  const fs::path file = folder / "report.json";
  const std::string command =
      ProgramBeside("geminid-train") + " --text " + (folder / "text").string() +
      " --model gpt2-20m --ranks 2 --batch 4 --steps " + std::to_string(kSteps) +
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

// Of the steps after the first.
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

void BM_LimitedOverUnlimited(benchmark::State& state, const std::string& limited_flags) {
  const fs::path folder =
      fs::temp_directory_path() / ("geminid-training-bench-" + std::to_string(getpid()));
  fs::create_directories(folder);
  WriteText(folder / "text");
  std::vector<double> ratios, limited_speed, unlimited_speed, stall, host;
  for (auto _ : state) {
    google::protobuf::Struct limited, unlimited;
    if (!Run(folder, limited_flags, &limited) ||
        !Run(folder, "--device-memory unlimited", &unlimited)) {
      state.SkipWithError("geminid-train failed; its message is above");
      break;
    }
    limited_speed.push_back(TokensPerSecond(limited));
    unlimited_speed.push_back(TokensPerSecond(unlimited));
    ratios.push_back(limited_speed.back() / unlimited_speed.back());
    host.push_back(Number(limited, "host_bytes_per_parameter"));
    double step_seconds = 0;
    for (const auto& value : limited.fields().at("step_seconds").list_value().values()) {
      step_seconds += value.number_value();
    }
    stall.push_back(Number(limited, "stall_seconds") / step_seconds);
    state.counters["state_over_device_memory"] = Number(limited, "model_state_bytes") /
                                                 Number(limited, "world_size") /
                                                 Number(limited, "device_bytes_limit");
  }
  fs::remove_all(folder);
  if (ratios.empty()) return;
  state.counters["ratio"] = Median(ratios);
  state.counters["limited_tokens_per_second"] = Median(limited_speed);
  state.counters["unlimited_tokens_per_second"] = Median(unlimited_speed);
  state.counters["stall_share"] = Median(stall);
  state.counters["host_bytes_per_parameter"] = Median(host);
}
BENCHMARK_CAPTURE(BM_LimitedOverUnlimited, fifth_of_the_state, std::string("--device-memory 24MiB"))
    ->Iterations(kPairs)
    ->Unit(benchmark::kSecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_LimitedOverUnlimited, fifth_and_a_link_of_2_gigabytes_per_second,
                  std::string("--device-memory 24MiB --copy-bandwidth 2GB/s"))
    ->Iterations(kPairs)
    ->Unit(benchmark::kSecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_LimitedOverUnlimited, cpu_placement,
                  std::string("--device-memory 24MiB --placement cpu"))
    ->Iterations(kPairs)
    ->Unit(benchmark::kSecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
