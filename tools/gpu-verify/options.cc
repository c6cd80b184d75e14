#include "tools/gpu-verify/options.h"

#include <algorithm>
#include <charconv>

namespace geminid::gpu_verify {
namespace {

// Under eight and under two minutes, with the time in which processes end.
constexpr double kLimitSeconds = 465;
constexpr double kQuickLimitSeconds = 108;
constexpr int kMostSeconds = 86'400;
constexpr int kMostDevices = 64;

bool ParseInt(const std::string& text, int least, int most, int* value) {
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, *value);
  return code == std::errc() && stop == end && *value >= least && *value <= most;
}

// Options that take a value.
bool ParseValue(const std::string& name, const std::string& value, Options* options,
                std::string* error) {
  if (name == "--json") {
    options->json_path = value;
    if (!value.empty()) return true;
    *error = "--json needs the name of a file";
    return false;
  }
  int number = 0;
  const bool device = name == "--device";
  if (!ParseInt(value, device ? 0 : 1, device ? kMostDevices - 1 : kMostSeconds, &number)) {
    *error = name + " " + value + ": a whole number " +
             (device ? "from 0 to 63" : "of seconds from 1 to 86400") + " is needed";
    return false;
  }
  if (device) {
    options->device = number;
  } else {
    options->limit_seconds = number;
  }
  return true;
}

}  // namespace

bool ParseOptions(const std::vector<std::string>& arguments, const std::vector<Probe>& catalogue,
                  Options* options, std::string* error) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options->help = true;
    } else if (argument == "--version") {
      options->version = true;
    } else if (argument == "--list") {
      options->list = true;
    } else if (argument == "--quick") {
      options->quick = true;
    } else if (argument == "--json" || argument == "--device" || argument == "--limit") {
      if (i + 1 == arguments.size()) {
        *error = argument + " needs a value";
        return false;
      }
      if (!ParseValue(argument, arguments[++i], options, error)) return false;
    } else if (argument.starts_with('-')) {
      *error = "unknown option " + argument;
      return false;
    } else {
      ids.push_back(argument);
    }
  }
  for (const std::string& id : ids) {
    if (std::none_of(catalogue.begin(), catalogue.end(),
                     [&](const Probe& probe) { return probe.id == id; })) {
      *error = "no question " + id + "; --list shows all";
      return false;
    }
  }
  for (const Probe& probe : catalogue) {
    if (ids.empty() || std::count(ids.begin(), ids.end(), probe.id) > 0) {
      options->probes.push_back(probe);
    }
  }
  if (options->limit_seconds == 0) {
    options->limit_seconds = options->quick ? kQuickLimitSeconds : kLimitSeconds;
  }
  return true;
}

std::string Usage() {
  return R"(usage: geminid-gpu-verify [OPTION...] [ID...]

Answers, on this machine's GPU, the questions on which Geminid's design rests. Prints one line per
question: the figure, and pass, fail or not applicable. Without an ID it answers all.

  --list           print the questions and end
  --quick          fewer repetitions: under 2 minutes instead of under 8
  --json FILE      also write the results to FILE, anew after each question
  --device N       the GPU to use, counted as CUDA does (default 0)
  --limit SECONDS  end of the whole run; questions left then fail as not run
  --version        print the version and end
  --help           print this and end

Exit status: 0 nothing failed, 8 something failed, 2 usage, 3 no usable driver or GPU.
It takes most of the GPU's free memory, kills processes it has started, and changes no settings:
run it on a GPU that nobody uses.
)";
}

}  // namespace geminid::gpu_verify
