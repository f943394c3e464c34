# A Rails application in one file: a report of orders, as JSON.
require "logger"
require "action_controller/railtie"

class Shop < Rails::Application
  config.eager_load = true
  config.hosts.clear
  config.secret_key_base = "only for this example"
  config.logger = Logger.new(IO::NULL)
  routes.append { get "/report/:day", to: "reports#show" }
end

class ReportsController < ActionController::API
  KEPT = {}

  def show
    day = params[:day].to_i
    random = Random.new(day)
    orders = Array.new(10_000) do |i|
      { id: i, customer: "customer #{random.rand(5000)}", note: "x" * random.rand(20..900) }
    end
    KEPT[day % 50] = orders.each_slice(200).map(&:first)
    render json: orders.group_by { |order| order[:customer] }
  end
end

Rails.application.initialize!
run Rails.application
