workers 2
threads 5, 5
preload_app!
bind "tcp://127.0.0.1:#{ENV.fetch("PORT", 3000)}"
