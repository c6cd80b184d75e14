#include "daemon/metrics/page.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace geminid::metrics {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

// The shortest text that reads as the same number; integers without an exponent.
void AppendNumber(double value, std::string* text) {
  constexpr double kMostExactInteger = 9007199254740992;  // 2^53
  if (value == std::trunc(value) && std::abs(value) <= kMostExactInteger) {
    absl::StrAppend(text, static_cast<int64_t>(value));
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text->append(digits, end);
}

// `a="b",c="d"`.
std::string LabelsOf(const Metric& metric, const LabelValues& values) {
  std::string labels;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& value = values[i];
    if (value.empty()) continue;
    absl::StrAppend(&labels, labels.empty() ? "" : ",", metric.labels[i], "=\"");
    if (value.find_first_of("\\\"\n") == std::string::npos) {
      labels.append(value);
    } else {
      labels.append(absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}));
    }
    labels.push_back('"');
  }
  return labels;
}

// `bound`: of a bucket, or empty.
void AppendLine(const Metric& metric, const char* suffix, const std::string& labels,
                const std::string& bound, double value, std::string* text) {
  absl::StrAppend(text, metric.name, suffix);
  if (!labels.empty() || !bound.empty()) {
    absl::StrAppend(text, "{", labels, labels.empty() || bound.empty() ? "" : ",", bound, "}");
  }
  text->push_back(' ');
  AppendNumber(value, text);
  text->push_back('\n');
}

std::string BoundOf(size_t range) {
  std::string bound = "le=\"";
  if (range == core::TimeHistogram::kBoundsNanoseconds.size()) {
    bound.append("+Inf");
  } else {
    AppendNumber(
        static_cast<double>(core::TimeHistogram::kBoundsNanoseconds[range]) / kNanosecondsPerSecond,
        &bound);
  }
  bound.push_back('"');
  return bound;
}

}  // namespace

Page::Page() {
  for (const Metric* metric : Catalogue()) places_.emplace(metric, places_.size());
  lines_.resize(places_.size());
}

void Page::Add(const Metric& metric, const LabelValues& labels, double value) {
  AppendLine(metric, "", LabelsOf(metric, labels), "", value, &lines_[places_.at(&metric)]);
}

void Page::Add(const Metric& metric, const LabelValues& labels, const core::TimeHistogram& times) {
  std::string* const text = &lines_[places_.at(&metric)];
  const std::string all_labels = LabelsOf(metric, labels);
  uint64_t so_far = 0;
  for (size_t i = 0; i < times.counts().size(); ++i) {
    so_far += times.counts()[i];
    AppendLine(metric, "_bucket", all_labels, BoundOf(i), static_cast<double>(so_far), text);
  }
  AppendLine(metric, "_sum", all_labels, "", times.sum().seconds(), text);
  AppendLine(metric, "_count", all_labels, "", static_cast<double>(so_far), text);
}

std::string Page::ToText() const {
  std::string text;
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].empty()) continue;
    const Metric& metric = *Catalogue()[i];
    absl::StrAppend(&text, "# HELP ", metric.name, " ", metric.help, "\n# TYPE ", metric.name, " ",
                    Name(metric.type), "\n", lines_[i]);
  }
  return text;
}

}  // namespace geminid::metrics
