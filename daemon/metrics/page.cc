#include "daemon/metrics/page.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace geminid::metrics {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

prometheus::MetricType TypeOf(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

double BoundSeconds(size_t range) {
  const auto& bounds = core::TimeHistogram::kBoundsNanoseconds;
  if (range == bounds.size()) return std::numeric_limits<double>::infinity();
  return static_cast<double>(bounds[range]) / kNanosecondsPerSecond;
}

}  // namespace

Page::Page() {
  for (const Metric* metric : Catalogue()) {
    places_.emplace(metric, places_.size());
    families_.push_back(
        {.name = metric->name, .help = metric->help, .type = TypeOf(metric->type), .metric = {}});
  }
}

prometheus::ClientMetric& Page::NewSeries(const Metric& metric, const LabelValues& labels) {
  prometheus::ClientMetric& series = families_[places_.at(&metric)].metric.emplace_back();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (!labels[i].empty()) series.label.push_back({metric.labels[i], labels[i]});
  }
  return series;
}

void Page::Add(const Metric& metric, const LabelValues& labels, double value) {
  prometheus::ClientMetric& series = NewSeries(metric, labels);
  (metric.type == MetricType::kCounter ? series.counter.value : series.gauge.value) = value;
}

void Page::Add(const Metric& metric, const LabelValues& labels, const core::TimeHistogram& times) {
  prometheus::ClientMetric::Histogram& histogram = NewSeries(metric, labels).histogram;
  for (size_t i = 0; i < times.counts().size(); ++i) {
    histogram.sample_count += times.counts()[i];
    histogram.bucket.push_back(
        {.cumulative_count = histogram.sample_count, .upper_bound = BoundSeconds(i)});
  }
  histogram.sample_sum = times.sum().seconds();
}

std::string Page::ToText() const {
  std::vector<prometheus::MetricFamily> shown;
  std::ranges::copy_if(families_, std::back_inserter(shown),
                       [](const auto& family) { return !family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(shown);
}

}  // namespace geminid::metrics
