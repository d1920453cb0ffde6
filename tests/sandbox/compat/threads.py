import threading

total = []
workers = [threading.Thread(target=lambda index=index: total.append(index)) for index in range(50)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert sorted(total) == list(range(50))
