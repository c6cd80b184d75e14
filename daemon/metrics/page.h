// One page in Prometheus' text format, version 0.0.4. Callers add metrics one by one.
#ifndef GEMINID_DAEMON_METRICS_PAGE_H_
#define GEMINID_DAEMON_METRICS_PAGE_H_

#include <prometheus/metric_family.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/basics/time_histogram.h"
#include "daemon/metrics/catalogue.h"

namespace geminid::metrics {

// Values of a metric's labels, in the metric's order. Empty values at the end may be left out.
using LabelValues = std::vector<std::string>;

class Page {
 public:
  Page();
  // Accepts only metrics of the catalogue. The caller adds no series twice.
  void Add(const Metric& metric, const LabelValues& labels, double value);
  void Add(const Metric& metric, const LabelValues& labels, const core::TimeHistogram& times);
  // The text, in the order of the catalogue. Metrics without a series are left out.
  std::string ToText() const;

 private:
  prometheus::ClientMetric& NewSeries(const Metric& metric, const LabelValues& labels);

  std::vector<prometheus::MetricFamily> families_;  // in the order of the catalogue
  std::unordered_map<const Metric*, size_t> places_;
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_PAGE_H_
