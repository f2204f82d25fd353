import type { Door } from '../../http/index.ts'

/** Before anything counts a request, all of it is here: who sends slowly takes nobody's place. */
export const received: Door = {
  async enter(request) {
    if (request.method === 'POST') await request.body()
    return {}
  },
}
