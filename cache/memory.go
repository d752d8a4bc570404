package cache

// Memory is a [Store] in the process, bounded in bytes.
type Memory struct{ config Config }

// NewMemory returns an empty store, or what [Config.Validate] says.
func NewMemory(c Config) (*Memory, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Memory{config: c.withDefaults()}, nil
}

func (m *Memory) Lookup(Key, Partition) []*Entry { return nil }
func (m *Memory) Put(*Entry) bool                { return false }
func (m *Memory) Delete(*Entry)                  {}
func (m *Memory) DeleteAll(Key)                  {}
func (m *Memory) Len() int                       { return 0 }
func (m *Memory) Bytes() int64                   { return 0 }
func (m *Memory) MaxEntryBytes() int64           { return m.config.MaxEntryBytes }
