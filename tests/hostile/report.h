// What was seen while strangers did what they could, what it must be, and how people and programs
// read it.
#ifndef GEMINID_TESTS_HOSTILE_REPORT_H_
#define GEMINID_TESTS_HOSTILE_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace geminid::hostile {

struct Phase {
  uint64_t jobs = 0;
  uint64_t jobs_with_other_bits = 0;  // or none
  std::vector<double> step_seconds;
  std::vector<double> answer_milliseconds;  // of GetStatus
  std::string during_slowest;               // what the strangers did meanwhile
  std::vector<size_t> attacks_during_slowest;
  // In a short run: of the slowest answers, each time that the same was tried again.
  std::vector<double> again_milliseconds;
  uint64_t unanswered = 0;
};

struct Report {
  double seconds = 0;
  std::string processors;  // who ran on which
  Phase calm;
  Phase hostile;
  uint64_t spoils = 0;          // answers that were others' business
  uint64_t dead_strangers = 0;  // ended by themselves, so they attacked less than they should
  std::vector<std::pair<std::string, uint64_t>> attacks;  // how often each was carried out
  std::optional<double> end_milliseconds;                 // from SIGTERM; none: it did not end
  bool books_add_up = true;
  uint64_t book_readings = 0;  // of the kernel's; 0: there is no cgroup to read
  // The most that the kernel held beyond the ledger and the daemon's own segments, for several
  // readings.
  uint64_t unaccounted_bytes = 0;
  uint64_t left_bytes = 0;  // likewise, once the strangers have gone
};

// Each target with what was measured; not met: `met` false. Those that need a quiet machine or a
// long run are left out of a short one.
struct Finding {
  std::string what;
  std::string target;
  std::string measured;
  bool met = true;
};
std::vector<Finding> Judge(const Report& report, bool is_long);

double Median(std::vector<double> values);  // 0 of none
double Slowest(const Phase& phase);         // milliseconds of an answer; 0 of none
// Whether that is too slow, and was each time that the same was tried again. Where other programs
// use the processors an answer can be slow for their sake, but what strangers can do to the daemon
// they can do again.
bool IsTooSlow(const Phase& phase, bool is_long);
bool EndsTooLate(double milliseconds);
// Of the median steps.
double StepRatio(const Report& report);

std::string ToTable(const Report& report, const std::vector<Finding>& findings);
std::string ToJson(const Report& report, const std::vector<Finding>& findings);

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_REPORT_H_
