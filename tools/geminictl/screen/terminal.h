// A terminal that shows one screen and takes single keys.
#ifndef GEMINID_TOOLS_GEMINICTL_SCREEN_TERMINAL_H_
#define GEMINID_TOOLS_GEMINICTL_SCREEN_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {

// Takes over standard input and output, and restores them when it is destroyed. SIGINT, SIGTERM and
// SIGHUP arrive as the key kQuitKey, so the terminal is restored after them too.
class Terminal {
 public:
  static constexpr char kQuitKey = 'q';
  static constexpr char kNoKey = '\0';

  // Call this before the process has other threads: new threads inherit the blocked signals.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  Screen Size() const;
  void Show(const std::string& text);
  // The next key, or kNoKey after `patience` or when the window changed its size.
  char WaitForKey(absl::Duration patience);

 private:
  Terminal(base::UniqueFd signals, const termios& before);

  const base::UniqueFd signals_;
  const termios before_;
};

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_TERMINAL_H_
