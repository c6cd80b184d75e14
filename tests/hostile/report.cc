#include "tests/hostile/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/json_writer.h"

namespace geminid::hostile {
namespace {

constexpr double kMostMilliseconds = 100;         // for an answer
constexpr double kMostMillisecondsShared = 2000;  // where other programs use the processors
constexpr double kMostToEnd = 2000;
constexpr double kMostStepRatio = 1.1;

uint64_t SlowerThan(const Phase& phase, double milliseconds) {
  const auto& all = phase.answer_milliseconds;
  return static_cast<uint64_t>(std::count_if(
      all.begin(), all.end(), [milliseconds](double value) { return value > milliseconds; }));
}

std::string Milliseconds(double value) { return absl::StrFormat("%.1f ms", value); }

std::string Again(const Phase& phase) {
  std::string text;
  for (const double again : phase.again_milliseconds) {
    absl::StrAppend(&text, ", again ", Milliseconds(again));
  }
  return text;
}

}  // namespace

double Slowest(const Phase& phase) {
  const auto& all = phase.answer_milliseconds;
  return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
}

bool IsTooSlow(const Phase& phase, bool is_long) {
  double least = Slowest(phase);
  for (const double again : phase.again_milliseconds) least = std::min(least, again);
  return least > (is_long ? kMostMilliseconds : kMostMillisecondsShared);
}

bool EndsTooLate(double milliseconds) { return milliseconds > kMostToEnd; }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double StepRatio(const Report& report) {
  const double calm = Median(report.calm.step_seconds);
  return calm == 0 ? 0 : Median(report.hostile.step_seconds) / calm;
}

std::vector<Finding> Judge(const Report& report, bool is_long) {
  const Phase& hostile = report.hostile;
  const double most = is_long ? kMostMilliseconds : kMostMillisecondsShared;
  std::vector<Finding> findings;
  findings.push_back({"jobs with other bits", "0",
                      absl::StrCat(hostile.jobs_with_other_bits, " of ", hostile.jobs),
                      hostile.jobs > 0 && hostile.jobs_with_other_bits == 0});
  findings.push_back(
      {"slowest status", absl::StrCat("<= ", Milliseconds(most)),
       absl::StrCat(Milliseconds(Slowest(hostile)), " of ", hostile.answer_milliseconds.size(),
                    ", ", hostile.unanswered, " missing", Again(hostile)),
       !hostile.answer_milliseconds.empty() && hostile.unanswered == 0 &&
           !IsTooSlow(hostile, is_long)});
  findings.push_back(
      {"SIGTERM obeyed", absl::StrCat("<= ", Milliseconds(kMostToEnd)),
       report.end_milliseconds ? Milliseconds(*report.end_milliseconds) : "never",
       report.end_milliseconds.has_value() && !EndsTooLate(*report.end_milliseconds)});
  findings.push_back({"ledger adds up", "always", report.books_add_up ? "always" : "not always",
                      report.books_add_up});
  findings.push_back(
      {"bytes the ledger does not show", "0 B",
       report.book_readings == 0
           ? "not read: no cgroup"
           : absl::StrCat(base::FormatBytes(report.unaccounted_bytes), " in ", report.book_readings,
                          " readings, ", base::FormatBytes(report.left_bytes), " afterwards"),
       report.unaccounted_bytes == 0 && report.left_bytes == 0});
  findings.push_back(
      {"answers about others", "0", absl::StrCat(report.spoils), report.spoils == 0});
  findings.push_back({"strangers that died", "0", absl::StrCat(report.dead_strangers),
                      report.dead_strangers == 0});
  const double ratio = StepRatio(report);
  findings.push_back(
      {"step time over the calm phases'",
       is_long ? absl::StrFormat("<= %.2f", kMostStepRatio) : "(a short run)",
       absl::StrFormat("%.3f (%s / %s)", ratio, Milliseconds(1e3 * Median(hostile.step_seconds)),
                       Milliseconds(1e3 * Median(report.calm.step_seconds))),
       !is_long || (ratio > 0 && ratio <= kMostStepRatio)});
  return findings;
}

std::string ToTable(const Report& report, const std::vector<Finding>& findings) {
  std::string text = absl::StrFormat("%-34s %-16s %-40s\n", "WHAT", "TARGET", "MEASURED");
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, absl::StrFormat("%-34s %-16s %-40s %s\n", finding.what, finding.target,
                                           finding.measured, finding.met ? "met" : "MISSED"));
  }
  absl::StrAppend(&text, "\nstatus: median ",
                  Milliseconds(Median(report.hostile.answer_milliseconds)), ", calm ",
                  Milliseconds(Median(report.calm.answer_milliseconds)), " and at most ",
                  Milliseconds(Slowest(report.calm)), "; ", report.processors, "\n");
  absl::StrAppend(&text, SlowerThan(report.hostile, kMostMilliseconds), " took over ",
                  Milliseconds(kMostMilliseconds),
                  "; the slowest during: ", report.hostile.during_slowest, "\n");
  for (const auto& [name, times] : report.attacks) {
    absl::StrAppend(&text, absl::StrFormat("%6d x %s\n", times, name));
  }
  return text;
}

std::string ToJson(const Report& report, const std::vector<Finding>& findings) {
  base::JsonWriter json;
  json.BeginObject().Key("schema_version").Value(uint64_t{1});
  json.Key("seconds").Value(report.seconds);
  json.Key("processors").Value(report.processors);
  json.Key("jobs").Value(report.hostile.jobs);
  json.Key("jobs_with_other_bits").Value(report.hostile.jobs_with_other_bits);
  json.Key("step_ratio").Value(StepRatio(report));
  json.Key("step_seconds").Value(Median(report.hostile.step_seconds));
  json.Key("calm_step_seconds").Value(Median(report.calm.step_seconds));
  json.Key("status_milliseconds_worst").Value(Slowest(report.hostile));
  json.Key("status_milliseconds_median").Value(Median(report.hostile.answer_milliseconds));
  json.Key("status_slower_than_target").Value(SlowerThan(report.hostile, kMostMilliseconds));
  json.Key("during_slowest_status").Value(report.hostile.during_slowest);
  json.Key("calm_status_milliseconds_worst").Value(Slowest(report.calm));
  json.Key("status_answers").Value(uint64_t{report.hostile.answer_milliseconds.size()});
  json.Key("status_unanswered").Value(report.hostile.unanswered);
  json.Key("end_milliseconds");
  report.end_milliseconds ? json.Value(*report.end_milliseconds) : json.Null();
  json.Key("books_add_up").Value(report.books_add_up);
  json.Key("book_readings").Value(report.book_readings);
  json.Key("unaccounted_bytes").Value(report.unaccounted_bytes);
  json.Key("left_bytes").Value(report.left_bytes);
  json.Key("dead_strangers").Value(report.dead_strangers);
  json.Key("answers_about_others").Value(report.spoils);
  json.Key("attacks").BeginObject();
  for (const auto& [name, times] : report.attacks) json.Key(name).Value(times);
  json.EndObject().Key("findings").BeginArray();
  for (const Finding& finding : findings) {
    json.BeginObject().Key("what").Value(finding.what).Key("target").Value(finding.target);
    json.Key("measured").Value(finding.measured).Key("met").Value(finding.met).EndObject();
  }
  json.EndArray().EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::hostile
