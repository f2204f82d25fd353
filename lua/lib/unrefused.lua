-- A Redis that is full refuses the first command of a script that may need memory, but none after a first write, since
-- that would leave half of it done. What lets jobs leave, holds them back or keeps them locked begins with a write that
-- changes nothing: otherwise nothing would ever leave, and those that add jobs would take each byte that comes free.
local function begin_unrefused(shape_key)
  redis.call('HDEL', shape_key, '')
end
