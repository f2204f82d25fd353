--- @include "groups"
--- @include "hooks"

-- The `redis` for scripts of BullMQ that put jobs into a wait list, or take them from the running ones: in a queue with
-- groups, the jobs are sorted in, and their places become free. A queue without groups pays one command.
local function groups_redis(redis)
  local call = redis.call
  local function of_list(list)
    return function(command, key, ...)
      local base = string.match(key, '^(.*:)' .. list .. '$')
      if not base or call('HEXISTS', base .. 'meta:shape', 'groups') == 0 then return call(command, key, ...) end
      local g = groups_library().bare(base)
      local reply = g:handlers(redis)[command](command, key, ...)
      g:save()
      return reply
    end
  end
  return hooked_redis(redis, {
    LPUSH = of_list('wait'), RPUSH = of_list('wait'), LREM = of_list('active'), ZREM = of_list('prioritized'),
  })
end
