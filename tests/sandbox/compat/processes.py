import multiprocessing
from multiprocessing import shared_memory


def square(number):
    return number * number


if __name__ == "__main__":
    for method in ["fork", "spawn"]:
        with multiprocessing.get_context(method).Pool(4) as pool:
            assert pool.map(square, range(20)) == [number * number for number in range(20)]
    queue = multiprocessing.Queue()
    worker = multiprocessing.Process(target=queue.put, args=("hello",))
    worker.start()
    assert queue.get(timeout=5) == "hello"
    worker.join()
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.buf[0] = 7
    memory.close()
    memory.unlink()
