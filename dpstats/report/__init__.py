"""Released numbers and strings made into summaries, pages and plots; knows no estimator."""
