#include "base/bus_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace geminid::base {
namespace {

std::atomic<const char*> name_of_program{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);

// Text of bounded length without allocation. What does not fit is left out.
template <size_t kBytes>
class Text {
 public:
  void Add(std::string_view words) {
    const size_t taken = std::min(words.size(), kBytes - size_);
    std::memcpy(bytes_ + size_, words.data(), taken);
    size_ += taken;
  }
  void AddHex(uint64_t number) {
    char digits[2 * sizeof number];
    size_t first = sizeof digits;
    do {
      digits[--first] = "0123456789abcdef"[number % 16];
      number /= 16;
    } while (number != 0);
    Add("0x");
    Add({digits + first, sizeof digits - first});
  }
  void Clear() { size_ = 0; }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  char bytes_[kBytes];
  size_t size_ = 0;
};

using Line = Text<512>;

// Takes the hexadecimal number at the beginning of `text`, and the character after it.
uint64_t TakeHex(std::string_view* text) {
  uint64_t number = 0;
  size_t i = 0;
  for (; i < text->size(); ++i) {
    const char c = (*text)[i];
    const bool is_digit = c >= '0' && c <= '9', is_letter = c >= 'a' && c <= 'f';
    if (!is_digit && !is_letter) break;
    number = number * 16 + static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  text->remove_prefix(std::min(i + 1, text->size()));
  return number;
}

// A line of /proc/self/maps is "7f00-7f10 rw-s 00000000 00:01 1234   /memfd:name (deleted)".
// Returns whether its range has the address, and the name, which may be empty.
bool HasAddress(std::string_view line, uint64_t address, std::string_view* name) {
  constexpr int kFieldsBeforeName = 4;  // after the range
  const uint64_t begin = TakeHex(&line);
  const uint64_t end = TakeHex(&line);
  if (address < begin || address >= end) return false;
  for (int field = 0; field < kFieldsBeforeName; ++field) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  }
  *name = line;
  return true;
}

// Writes the name of the mapping that has the address to `name`.
void FindMapping(uint64_t address, Line* name) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  Line line;
  char block[1024];
  for (ssize_t got = 0; (got = ::read(maps, block, sizeof block)) > 0;) {
    for (ssize_t i = 0; i < got; ++i) {
      if (block[i] != '\n') {
        line.Add({block + i, 1});
        continue;
      }
      std::string_view found;
      if (HasAddress(line.view(), address, &found)) {
        name->Add(found);
        (void)::close(maps);
        return;
      }
      line.Clear();
    }
  }
  (void)::close(maps);
}

void AddReason(std::string_view mapping, Text<1536>* words) {
  const bool is_memfd = mapping.starts_with("/memfd:");
  if (mapping.empty()) {
    words->Add(
        "It has no file. Look into the kernel's log (dmesg) for huge pages and memory errors");
  } else if (is_memfd || mapping.starts_with("/dev/shm/") || mapping.starts_with("/dev/zero")) {
    words->Add(
        "This shared memory was taken back (geminictl end does so), or no memory is left for it. "
        "Look at the last lines of the daemon's log, at free memory (free -h, memory.max of the "
        "cgroup), at 'df -h /dev/shm', and at HugePages_Free in /proc/meminfo");
  } else {
    words->Add(
        "The file has become shorter, or its disk is full or fails. Do not write to a file that a "
        "run reads; see df -h and dmesg");
  }
}

void OnBusError(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  WriteBusError(name_of_program.load(), *info);
  errno = saved;
  // SA_RESETHAND: afterwards the instruction faults again, and this time ends the process.
  if (info->si_code <= 0) (void)::raise(signal);
}

}  // namespace

void WriteBusError(const char* program, const siginfo_t& info) {
  if (info.si_code <= 0) return;  // from kill()
  const auto address = reinterpret_cast<uint64_t>(info.si_addr);
  Line mapping;
  FindMapping(address, &mapping);
  Text<1536> words;
  words.Add(program);
  words.Add(": SIGBUS: ");
  if (info.si_code == BUS_MCEERR_AR || info.si_code == BUS_MCEERR_AO) {
    words.Add("the machine's memory is broken at address ");
  } else {
    words.Add("there is no page of memory at address ");
  }
  words.AddHex(address);
  words.Add(", in ");
  words.Add(mapping.view().empty() ? "a mapping without a name" : mapping.view());
  words.Add(". ");
  if (info.si_code == BUS_MCEERR_AR || info.si_code == BUS_MCEERR_AO) {
    words.Add("Look for machine check exceptions in the kernel's log (dmesg)");
  } else {
    AddReason(mapping.view(), &words);
  }
  words.Add(".\n");
  const std::string_view all = words.view();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, all.data(), all.size());
}

void ExplainBusErrors(const char* program) {
  name_of_program.store(program);
  struct sigaction before = {};
  if (::sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  (void)::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace geminid::base
