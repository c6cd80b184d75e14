#include "tools/geminictl/screen/watch.h"

#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "tools/geminictl/screen/terminal.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {
namespace {

// The output of one run.
class Target {
 public:
  // Called before the first request, because Terminal::Open must run before other threads exist.
  static absl::StatusOr<std::unique_ptr<Target>> Open(const Context& context) {
    auto target = std::unique_ptr<Target>(new Target(context));
    if (!context.interactive || context.json) return target;
    GEMINID_ASSIGN_OR_RETURN(target->terminal_, Terminal::Open());
    return target;
  }

  void Show(const std::string& text) {
    if (terminal_ == nullptr) {
      *context_.out << text << std::flush;
    } else {
      terminal_->Show(FitScreen(text, terminal_->Size()));
    }
  }

  void ShowFailure(const absl::Status& failure) {
    const std::string text = absl::StrCat("geminictl: ", failure.message(), "\n");
    if (terminal_ == nullptr) {
      *context_.err << text << std::flush;
    } else {
      Show(text);
    }
  }

  // Whether messages besides the output would damage a screen.
  bool is_screen() const { return terminal_ != nullptr; }

  // Returns false when the command must stop.
  bool Pause(absl::Duration interval) {
    if (terminal_ == nullptr) {
      absl::SleepFor(interval);
      return static_cast<bool>(*context_.out);  // false: the reader is gone
    }
    const absl::Time until = base::MonotonicNow() + interval;
    while (base::MonotonicNow() < until) {
      if (terminal_->WaitForKey(until - base::MonotonicNow()) == Terminal::kQuitKey) return false;
    }
    return true;
  }

 private:
  explicit Target(const Context& context) : context_(context) {}

  const Context& context_;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace

absl::StatusOr<int> Watch(const Context& context, const WatchOptions& options,
                          const std::function<absl::StatusOr<int>(const Context&)>& run) {
  if (options.interval == absl::ZeroDuration()) return run(context);
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target, Target::Open(context));
  for (uint64_t time = 1;; ++time) {
    std::ostringstream out;
    Context inner = context;
    inner.out = &out;
    if (target->is_screen()) inner.err = &out;
    const absl::StatusOr<int> code = run(inner);
    if (code.ok()) {
      target->Show(out.str());
    } else if (time == 1) {
      return code;
    } else {
      target->ShowFailure(code.status());
    }
    if (time == options.times || !target->Pause(options.interval)) return code;
  }
}

}  // namespace geminid::ctl
